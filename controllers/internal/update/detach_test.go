package update

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// attach attaches a volume of a claim to the Node of a host.
func (w *world) attach(ctx context.Context, host int, claim string) *storagev1.VolumeAttachment {
	GinkgoHelper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim}
	Expect(w.workload.Create(ctx, pv)).To(Succeed())
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va-" + claim}}
	a.Spec.NodeName, a.Spec.Source.PersistentVolumeName, a.Status.Attached = hostName(host), &pv.Name, true
	Expect(w.workload.Create(ctx, a)).To(Succeed())
	return a
}

// daemonPod creates a Pod of a DaemonSet that uses a claim on the Node of the first host.
func (w *world) daemonPod(ctx context.Context, claim string) {
	GinkgoHelper()
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim, UID: "1"}}
	Expect(w.workload.Create(ctx, set)).To(Succeed())
	pod := withVolume(newPod(0), claim)
	pod.Name, pod.OwnerReferences = claim, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: claim, UID: "1", Controller: ptr.To(true)}}
	Expect(w.workload.Create(ctx, pod)).To(Succeed())
}

// withVolume returns a Pod that uses a claim.
func withVolume(pod *corev1.Pod, claim string) *corev1.Pod {
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	return pod
}

var _ = Describe("The volumes of a Node that is drained", func() {
	// draining returns a world with a host that asks for its drain, and a Pod with a volume on it.
	draining := func(ctx SpecContext) *world {
		GinkgoHelper()
		w := newWorld(2)
		Expect(w.workload.Create(ctx, withVolume(newPod(0), "data"))).To(Succeed())
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		return w
	}
	changeMachine := func(ctx SpecContext, w *world, change func(*clusterv1.Machine)) {
		GinkgoHelper()
		machine := w.machine(ctx, 0)
		change(machine)
		Expect(w.management.Update(ctx, machine)).To(Succeed())
	}
	isDrained := HaveField("Annotations", HaveKey(agentv1.DrainedAnnotation))

	It("must be detached before the agent is told, and the condition names them", func(ctx SpecContext) {
		w := draining(ctx)
		a := w.attach(ctx, 0, "data")
		w.attach(ctx, 1, "other")
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", drainRetry))
		w.settle(ctx)
		Expect(w.node(ctx, 0)).NotTo(isDrained)
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateDrainingReason), HaveField("Message",
			And(ContainSubstring("still attached to the Node: PersistentVolumeClaim default/data"), Not(ContainSubstring("other"))))))
		a.Status.Attached = false
		Expect(w.workload.Status().Update(ctx, a)).To(Succeed())
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(isDrained)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DetachStartedAnnotation))
	})

	It("stay attached if their Pod stays on the Node", func(ctx SpecContext) {
		w := draining(ctx)
		w.daemonPod(ctx, "log")
		w.attach(ctx, 0, "log")
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(isDrained)
	})

	It("are waited for no longer than nodeVolumeDetachTimeoutSeconds of the Machine", func(ctx SpecContext) {
		w := draining(ctx)
		w.attach(ctx, 0, "data")
		changeMachine(ctx, w, func(m *clusterv1.Machine) { m.Spec.Deletion.NodeVolumeDetachTimeoutSeconds = ptr.To[int32](60) })
		w.settle(ctx)
		Expect(w.node(ctx, 0)).NotTo(isDrained)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.DetachStartedAnnotation] = time.Now().Add(-61 * time.Second).UTC().Format(time.RFC3339)
		})
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(isDrained)
	})

	DescribeTable("are not waited for", func(ctx SpecContext, change func(SpecContext, *world)) {
		w := draining(ctx)
		w.attach(ctx, 0, "data")
		change(ctx, w)
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(isDrained)
	},
		Entry("if the Machine excludes it", func(ctx SpecContext, w *world) {
			changeMachine(ctx, w, func(m *clusterv1.Machine) {
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, "")
			})
		}),
		Entry("if the Node is unreachable", func(ctx SpecContext, w *world) {
			node := w.node(ctx, 0)
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
			Expect(w.workload.Status().Update(ctx, node)).To(Succeed())
		}),
	)

	It("are not read without end from an API server whose pages do not end", func(ctx SpecContext) {
		w := draining(ctx)
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred()) // evicts the Pod
		endless := interceptor.NewClient(w.workload, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				attachments, ok := list.(*storagev1.VolumeAttachmentList)
				if !ok {
					return c.List(ctx, list, opts...)
				}
				attachments.Continue = "more"
				return ctx.Err()
			},
		})
		clusters := controllertest.NewClusterCache(endless, clusterKey)
		clusters.RESTConfig = w.reconciler.ClusterCache.(*controllertest.ClusterCache).RESTConfig
		w.reconciler.ClusterCache = clusters
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(ContainSubstring("the cluster has more than 200000")))
		Expect(w.node(ctx, 0)).NotTo(isDrained)
	}, SpecTimeout(10*time.Second))

	DescribeTable("are waited for also if only the status of the Node names them, as it does for in-tree drivers", func(ctx SpecContext, name string) {
		w := draining(ctx)
		report := func(volumes ...corev1.AttachedVolume) {
			node := w.node(ctx, 0)
			node.Status.VolumesAttached = volumes
			Expect(w.workload.Status().Update(ctx, node)).To(Succeed())
		}
		report(corev1.AttachedVolume{Name: corev1.UniqueVolumeName(name)})
		w.settle(ctx)
		Expect(w.node(ctx, 0)).NotTo(isDrained)
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("still attached to the Node: volume " + name))
		report()
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(isDrained)
	},
		Entry("iSCSI", "kubernetes.io/iscsi/192.0.2.1:3260:iqn.2026-11.com.example:0"),
		Entry("CSI", "kubernetes.io/csi/csi.example.com^7"),
	)

	It("are named once if both a VolumeAttachment and the status of the Node name them, and stay with their Pod", func(ctx SpecContext) {
		w := draining(ctx)
		for i, claim := range []string{"data", "log"} {
			w.attach(ctx, 0, claim)
			pv := &corev1.PersistentVolume{}
			Expect(w.workload.Get(ctx, client.ObjectKey{Name: "pv-" + claim}, pv)).To(Succeed())
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: claim}
			Expect(w.workload.Update(ctx, pv)).To(Succeed())
			node := w.node(ctx, 0)
			node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName("kubernetes.io/csi/csi.example.com^" + claim)})
			Expect(w.workload.Status().Update(ctx, node)).To(Succeed(), "volume %d", i)
		}
		w.daemonPod(ctx, "log")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).To(HaveSuffix("still attached to the Node: PersistentVolumeClaim default/data"))
	})

	It("are waited for without a claim and without a PersistentVolume", func(ctx SpecContext) {
		w := draining(ctx)
		inline := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "inline"}}
		inline.Spec.NodeName, inline.Status.Attached = hostName(0), true
		gone := inline.DeepCopy()
		gone.Name, gone.Spec.Source.PersistentVolumeName = "gone", ptr.To("pv-gone")
		Expect(errors.Join(w.workload.Create(ctx, inline), w.workload.Create(ctx, gone))).To(Succeed())
		w.settle(ctx)
		Expect(w.node(ctx, 0)).NotTo(isDrained)
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("PersistentVolume pv-gone, VolumeAttachment inline"))
	})
})
