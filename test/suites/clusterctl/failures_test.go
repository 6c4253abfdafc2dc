package clusterctl_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// certificateKey is the Secret of the config server's certificate.
var certificateKey = client.ObjectKey{Namespace: poolbootNamespace, Name: "poolboot-config-server-cert"}

// upgradeTo upgrades or rolls back with clusterctl, and waits for the Pods for some seconds.
func upgradeTo(ctx context.Context, version string, seconds int) error {
	_, _, err := cli.Run(ctx, cluster.Kubeconfig, "upgrade", "apply", "--bootstrap=poolboot:"+version,
		"--wait-providers", fmt.Sprintf("--wait-provider-timeout=%d", seconds))
	return err
}

// plugin runs kubectl-poolboot on the management cluster.
func plugin(ctx context.Context, args ...string) (string, error) {
	binDir, err := process.BinDir()
	if err != nil {
		return "", err
	}
	output, err := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), append(args, "--kubeconfig="+cluster.Kubeconfig)...).CombinedOutput()
	return string(output), err
}

// moveServer removes the config server's address from the network, or adds it.
func moveServer(ctx context.Context, action string) {
	GinkgoHelper()
	_, err := cluster.Nodes[0].Run(ctx, "ip", "address", action, cluster.ServiceAddress()+"/32", "dev", "eth0")
	Expect(err).NotTo(HaveOccurred())
}

// leader returns the identity of the manager that holds the Lease, and its Pod.
func leader(ctx context.Context, c client.Client) (identity string, pod *corev1.Pod, err error) {
	var leases coordinationv1.LeaseList
	var pods corev1.PodList
	if err := errors.Join(c.List(ctx, &leases, client.InNamespace(poolbootNamespace)), c.List(ctx, &pods, client.InNamespace(poolbootNamespace))); err != nil {
		return "", nil, err
	}
	for _, lease := range leases.Items {
		identity := ptr.Deref(lease.Spec.HolderIdentity, "")
		name, _, _ := strings.Cut(identity, "_")
		if i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == name }); i >= 0 {
			return identity, &pods.Items[i], nil
		}
	}
	return "", nil, errors.New("no Pod holds a Lease")
}

// killLeader kills the manager that holds the Lease, and waits until another one does.
func killLeader(ctx context.Context, c client.Client) {
	GinkgoHelper()
	var killed string
	var pod *corev1.Pod
	Eventually(ctx, func() (err error) { killed, pod, err = leader(ctx, c); return err }).Should(Succeed())
	start := time.Now()
	i := slices.IndexFunc(cluster.Nodes, func(h *baremetal.Host) bool { return h.Name() == pod.Spec.NodeName })
	_, err := cluster.Nodes[i].Run(ctx, "bash", "-c", `kill -KILL $(grep -lzx "HOSTNAME=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)`, "bash", pod.Name)
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() (string, error) { identity, _, err := leader(ctx, c); return identity, err }).ShouldNot(Equal(killed))
	AddReportEntry("time without a leader", time.Since(start))
}

// expireCertificate replaces the config server's certificate with one that has expired, of the same CA and key.
func expireCertificate(ctx context.Context, c client.Client) {
	GinkgoHelper()
	var authority, server corev1.Secret
	Expect(c.Get(ctx, client.ObjectKey{Namespace: poolbootNamespace, Name: "poolboot-ca"}, &authority)).To(Succeed())
	Expect(c.Get(ctx, certificateKey, &server)).To(Succeed())
	ca, err := tls.X509KeyPair(authority.Data["tls.crt"], authority.Data["tls.key"])
	Expect(err).NotTo(HaveOccurred())
	current, err := tls.X509KeyPair(server.Data["tls.crt"], server.Data["tls.key"])
	Expect(err).NotTo(HaveOccurred())
	expired := *current.Leaf
	expired.NotBefore, expired.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &expired, ca.Leaf, expired.PublicKey, ca.PrivateKey)
	Expect(err).NotTo(HaveOccurred())
	server.Data["tls.crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	Expect(c.Update(ctx, &server)).To(Succeed())
}

// configServers returns the Pods of the config server, and how often each has restarted.
func configServers(ctx context.Context, lab *site.Site) (pods []corev1.Pod, restarts map[types.UID]int32) {
	GinkgoHelper()
	var list corev1.PodList
	Expect(lab.ManagementClient.List(ctx, &list, client.InNamespace(poolbootNamespace),
		client.MatchingLabels{"app.kubernetes.io/component": "config-server"})).To(Succeed())
	restarts = map[types.UID]int32{}
	for _, pod := range list.Items {
		for _, container := range pod.Status.ContainerStatuses {
			restarts[pod.UID] += container.RestartCount
		}
	}
	return list.Items, restarts
}

// waitForCertificates waits until all config servers have a certificate that is valid, or one that has expired. It
// changes their Pods: otherwise, kubelets update the files of a Secret within about a minute.
func waitForCertificates(ctx context.Context, lab *site.Site, valid bool) {
	GinkgoHelper()
	Eventually(ctx, func() (bool, error) {
		var secret corev1.Secret
		if err := lab.ManagementClient.Get(ctx, certificateKey, &secret); err != nil {
			return false, err
		}
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		return err == nil && pair.Leaf.NotAfter.After(time.Now()), err
	}).Should(Equal(valid))
	_, err := lab.Kubectl(ctx, cluster.ControlPlane, "annotate", "pods", "--namespace="+poolbootNamespace, "--all", "--overwrite",
		"example.com/now="+time.Now().Format("150405.000"))
	Expect(err).NotTo(HaveOccurred())
	pods, _ := configServers(ctx, lab)
	for _, pod := range pods {
		Eventually(ctx, func() (bool, error) {
			dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it sends nothing
			connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "9444"))
			if err != nil {
				return false, err
			}
			defer connection.Close()
			return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter.After(time.Now()), nil
		}).Should(Equal(valid), pod.Name)
	}
}

// connects reports whether a program in the network of a Pod can connect to an address.
func connects(ctx context.Context, pod *corev1.Pod, address string, port any) (bool, error) {
	i := slices.IndexFunc(cluster.Nodes, func(h *baremetal.Host) bool { return h.Name() == pod.Spec.NodeName })
	script := `for net in /var/run/netns/*; do
		nsenter --net=$net ip -o address | grep -qwF "$1" || continue
		nsenter --net=$net timeout 3 bash -c ": </dev/tcp/$2/$3" && echo open || echo closed
	done 2>/dev/null`
	output, err := cluster.Nodes[i].Run(ctx, "bash", "-c", script, "bash", pod.Status.PodIP, address, fmt.Sprint(port))
	if output == "" {
		err = errors.Join(err, fmt.Errorf("%s has no network of Pod %s", pod.Spec.NodeName, pod.Name))
	}
	return output == "open\n", err
}

// watchServer connects with the config server all the time, and returns a function that returns the longest time
// without an answer.
func watchServer(ctx context.Context) func() time.Duration {
	address := net.JoinHostPort(cluster.ServiceAddress(), "9444")
	ctx, end := context.WithCancel(ctx)
	result := make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for last := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Second}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it sends nothing
			if connection, err := dialer.DialContext(ctx, "tcp", address); err == nil {
				_ = connection.Close()
				longest, last = max(longest, time.Since(last)), time.Now()
			}
		}
		result <- longest
	}()
	return func() time.Duration { end(); return <-result }
}
