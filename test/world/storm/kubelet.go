package storm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// kubelet registers a Node as a real kubelet does: it requests a client certificate with its bootstrap credential, and
// registers with that certificate. Its flags are only used if it creates the Node.
type kubelet struct {
	// name, labels, taints and providerID are its flags.
	name       string
	labels     map[string]string
	taints     []corev1.Taint
	providerID string
	// bootstrap is a client configuration with the bootstrap credential.
	bootstrap *rest.Config
	// key is that of the client certificate. It is nil until the certificate was requested.
	key *ecdsa.PrivateKey
	// own is a client configuration with the client certificate. It is nil until there is one.
	own *rest.Config
	// node is the Node as the kubelet wrote it last. It is nil until the kubelet has registered.
	node *corev1.Node
	// settings are those of the agent of the host. They are empty for a host without an agent.
	settings assignment.Settings
}

// join registers the Node and makes it Ready. After an error, it goes on where it failed when it is called again: the
// API server can have done what it did not answer.
func (k *kubelet) join(ctx context.Context) (err error) {
	if k.own == nil {
		if k.own, err = k.certificate(ctx); err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
	}
	own, connections, err := connect(k.own)
	if err != nil {
		return err
	}
	defer connections.CloseIdleConnections()
	if k.node == nil {
		if k.node, err = k.register(ctx, own); err != nil {
			return fmt.Errorf("register: %w", err)
		}
	}
	return updateStatus(ctx, own, k.node, ready(corev1.ConditionTrue))
}

func connect(config *rest.Config) (*kubernetes.Clientset, *http.Client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = "kubelet", -1
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	clients, err := kubernetes.NewForConfigAndClient(config, connections)
	return clients, connections, err
}

// certificate requests a client certificate and returns a client configuration with it.
func (k *kubelet) certificate(ctx context.Context) (*rest.Config, error) {
	clients, _, err := connect(k.bootstrap)
	if err != nil {
		return nil, err
	}
	if k.key == nil {
		if k.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
	}
	request, err := cert.MakeCSRFromTemplate(k.key, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + k.name, Organization: []string{"system:nodes"}},
	})
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(k.key.Public())
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(public) // as in the kubelet: a repeated request finds the first one
	name, uid, err := csr.RequestCertificateWithContext(ctx, clients, request, "node-csr-"+hex.EncodeToString(hash[:20]), certificatesv1.KubeAPIServerClientKubeletSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, k.key)
	if err != nil {
		return nil, err
	}
	certificate, err := csr.WaitForCertificate(ctx, clients, name, uid)
	if err != nil {
		return nil, err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(k.key)
	if err != nil {
		return nil, err
	}
	own := rest.AnonymousClientConfig(k.bootstrap)
	own.CertData, own.KeyData = certificate, keyPEM
	return own, nil
}

// register creates the Node, or adopts an existing Node and sets only the labels that describe the machine.
func (k *kubelet) register(ctx context.Context, clients *kubernetes.Clientset) (*corev1.Node, error) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: map[string]string{}},
		Spec:       corev1.NodeSpec{Taints: k.taints, ProviderID: k.providerID},
	}
	maps.Copy(node.Labels, k.labels)
	k.describe(node)
	created, err := clients.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err == nil {
		return created, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	found, err := clients.CoreV1().Nodes().Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if err := updateStatus(ctx, clients, found, k.describe); err != nil {
		return nil, err
	}
	return found, nil
}

// describe sets the labels and status of a Node that describe the machine.
func (k *kubelet) describe(node *corev1.Node) {
	maps.Copy(node.Labels, map[string]string{corev1.LabelHostname: k.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"})
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"}
	ready(corev1.ConditionFalse)(node)
}

// ready sets the Node's condition Ready.
func ready(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(node *corev1.Node) {
		now := metav1.Now()
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Kubelet" + string(status),
			LastHeartbeatTime: now, LastTransitionTime: now}}
	}
}

// updateStatus patches a Node's status subresource, with which a kubelet also writes its Node's labels.
func updateStatus(ctx context.Context, clients *kubernetes.Clientset, node *corev1.Node, change func(*corev1.Node)) error {
	changed := node.DeepCopy()
	change(changed)
	before, err := json.Marshal(node)
	if err != nil {
		return err
	}
	after, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return err
	}
	patched, err := clients.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err == nil {
		*node = *patched
	}
	return err
}

// taint parses a taint in the format of the kubelet's flag --register-with-taints: key=value:effect.
func taint(text string) corev1.Taint {
	text, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(text, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}
