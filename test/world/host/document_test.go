package host_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

func dataURL(text []byte) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString(text)
}

func certificatePEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func portOf(node *corev1.Node) string {
	return strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
}

// document is an Ignition config.
func document(config map[string]any) []byte {
	raw, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	return raw
}

func unit(name, contents string) map[string]any {
	return map[string]any{"name": name, "enabled": true, "contents": contents}
}

func file(path string, mode int, text string) map[string]any {
	return map[string]any{"path": path, "mode": mode, "overwrite": true,
		"contents": map[string]any{"source": dataURL([]byte(text))}}
}
