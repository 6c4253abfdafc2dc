package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// controlPlane returns the KubeadmControlPlane.
func controlPlane(ctx context.Context) *controlplanev1.KubeadmControlPlane {
	GinkgoHelper()
	plane := &controlplanev1.KubeadmControlPlane{}
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), plane)).To(Succeed())
	return plane
}

// scaleControlPlane changes the replicas of the KubeadmControlPlane.
func scaleControlPlane(ctx context.Context, replicas int32) {
	GinkgoHelper()
	plane := controlPlane(ctx)
	before := plane.DeepCopy()
	plane.Spec.Replicas = ptr.To(replicas)
	Expect(lab.ManagementClient.Patch(ctx, plane, client.MergeFrom(before))).To(Succeed())
}

// controlPlaneMachines returns the Machines of the control plane.
func controlPlaneMachines(ctx context.Context) []clusterv1.Machine {
	GinkgoHelper()
	machines := &clusterv1.MachineList{}
	Expect(lab.ManagementClient.List(ctx, machines, client.InNamespace(t.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel})).To(Succeed())
	return machines.Items
}

// annotate adds an annotation to a Machine.
func annotate(ctx context.Context, machine *clusterv1.Machine, key string) {
	GinkgoHelper()
	before := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, key, "")
	Expect(lab.ManagementClient.Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
}

// controlPlaneHosts returns the hosts of the control plane, whose names are those of their Nodes.
func controlPlaneHosts(ctx context.Context) []*baremetal.Host {
	GinkgoHelper()
	var hosts []*baremetal.Host
	for _, machine := range controlPlaneMachines(ctx) {
		if host := lab.Hardware.Host(machine.Status.NodeRef.Name); host != nil {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// expectComplete waits until the control plane has all its replicas, all of them are healthy, and all Nodes are ready.
func expectComplete(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		plane := &controlplanev1.KubeadmControlPlane{}
		g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), plane)).To(Succeed())
		g.Expect(plane.Status.ReadyReplicas).To(HaveValue(BeEquivalentTo(planeHosts)))
		for _, kind := range []string{controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition} {
			g.Expect(conditions.IsTrue(plane, kind)).To(BeTrue(), "%s: %s", kind, conditions.GetMessage(plane, kind))
		}
		nodes := &corev1.NodeList{}
		g.Expect(lab.WorkloadClient.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(planeHosts + workerHosts))
		for _, node := range nodes.Items {
			g.Expect(util.IsNodeReady(&node)).To(BeTrue(), node.Name)
		}
	}).WithTimeout(12 * time.Minute).Should(Succeed())
}

// etcdServes reports whether the etcd of a host serves, with the other members or, if it is serializable, alone.
func etcdServes(ctx context.Context, host *baremetal.Host, serializable bool) bool {
	answer, err := host.Run(ctx, "curl", "--silent", "--max-time", "1", fmt.Sprintf("http://127.0.0.1:2381/health?serializable=%t", serializable))
	return err == nil && answer == `{"health":"true","reason":""}`
}

// etcdCount is how many members of etcd served at a time, and how many of them had a quorum.
type etcdCount struct {
	At              time.Time
	Members, Quorum int
}

// etcdWatch counts the members of etcd.
type etcdWatch struct {
	mu     sync.Mutex
	counts []etcdCount
}

// etcdHosts returns the hosts that have a member of etcd, or had one.
func etcdHosts() (hosts []*baremetal.Host) {
	for i := range planeHosts + workerHosts + 1 {
		if host := lab.Hardware.Host(t.HostName(i)); host != nil {
			if _, err := host.ReadFile("/etc/kubernetes/manifests/etcd.yaml"); err == nil {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}

// watchEtcd counts the members of etcd every half second until the spec ends.
func watchEtcd(ctx context.Context) *etcdWatch {
	GinkgoHelper()
	w := &etcdWatch{}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	DeferCleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for watching.Err() == nil {
			count := etcdCount{At: time.Now()}
			for _, host := range etcdHosts() {
				if etcdServes(watching, host, true) {
					count.Members++
				}
				if etcdServes(watching, host, false) {
					count.Quorum++
				}
			}
			w.mu.Lock()
			w.counts = append(w.counts, count)
			w.mu.Unlock()
			select {
			case <-watching.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return w
}

// Counts returns all counts so far.
func (w *etcdWatch) Counts() []etcdCount {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]etcdCount(nil), w.counts...)
}

// Fewest returns the fewest members that served at a time.
func (w *etcdWatch) Fewest() int {
	fewest := planeHosts
	for _, count := range w.Counts() {
		fewest = min(fewest, count.Members)
	}
	return fewest
}

// breakStaticPod makes a static Pod of a host fail at each start until the returned function is called.
func breakStaticPod(ctx context.Context, host *baremetal.Host, name string) (repair func(context.Context)) {
	GinkgoHelper()
	manifest := "/etc/kubernetes/manifests/" + name + ".yaml"
	content, err := host.ReadFile(manifest)
	Expect(err).NotTo(HaveOccurred())
	replace := func(ctx context.Context, script string) {
		GinkgoHelper()
		Expect(host.Run(ctx, "sh", "-euc", script, "sh", manifest, name)).Error().NotTo(HaveOccurred())
	}
	// The kubelet reads each file in the folder, also one that is not complete.
	replace(ctx, `sed "s/^    - $2\$/&\n    - --broken/" "$1" >/run/broken.yaml; ! cmp -s /run/broken.yaml "$1"; cp --preserve=mode "$1" /etc/kubernetes/whole.yaml; mv /run/broken.yaml "$1"`)
	Expect(host.ReadFile(manifest)).NotTo(Equal(content))
	return func(ctx context.Context) { replace(ctx, `mv /etc/kubernetes/whole.yaml "$1"`) }
}
