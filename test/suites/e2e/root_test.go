package e2e

import (
	"context"
	"net/url"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// gpuLabel is one that a kubelet may set, and that a pool selects by.
const gpuLabel = "example.com/gpu"

var _ = Describe("Root on a host that has joined", Ordered, func() {
	var (
		t *tenant.Tenant
		// own is the host's, in pool infra; other is a host of pool gpu that is about to boot.
		own, other *bootstrapv1.PoolbootConfig
		credential *rest.Config
		kubelet    client.Client
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 0, func(p *poolv1.MachineConfigPool) {
			if p.Spec.PoolRole == "infra" {
				p.Spec.NodeTaints = []nodev1.Taint{{Key: "dedicated", Value: "infra", Effect: corev1.TaintEffectNoSchedule}}
			}
		})
		gpu := t.Pool("gpu")
		gpu.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{gpuLabel: "yes"}}
		t.Create(ctx, gpu, t.MachineConfig("52-gpu", "gpu", "/etc/gputest", "gpu"))
		t.Deploy(ctx, tenant.Deployment{Name: "gpu", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "gpu" }})
		other = t.Config(ctx, "gpu")
		Eventually(ctx, t.Condition(other, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		switchedOff(ctx, t, other)
		Eventually(ctx, answer).WithArguments(t.Pointer(ctx, other)).Should(Equal(200))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())

		t.AddHost(ctx, t.HostName(1))
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		own = t.Config(ctx, "infra")
		joined(ctx, t, own)
		var err error
		credential, err = lab.Workload.UserConfig("system:node:"+own.Status.NodeRef.Name, "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		kubelet = clientOf(credential)

		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		Eventually(ctx, func() (*admissionregistrationv1.TypeChecking, error) {
			err := lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: "poolboot-node-guard." + t.Namespace + "." + t.Namespace}, policy)
			return policy.Status.TypeChecking, err
		}).Should(HaveValue(HaveField("ExpressionWarnings", BeEmpty())))

		// The API server has the policy in force some time after it stands, and again after the last pool changed it.
		Eventually(ctx, func() error {
			is := t.Node(ctx, own)
			wanted := is.DeepCopy()
			wanted.Labels[gpuLabel] = "yes"
			return kubelet.Patch(ctx, wanted, client.MergeFrom(is), client.DryRunAll)
		}).Should(Satisfy(apierrors.IsForbidden))
	}, NodeTimeout(5*time.Minute))

	const (
		policy          = "a kubelet may not change"
		nodeRestriction = "is not allowed to modify"
	)

	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	annotation := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations[key] = value }
	}
	DescribeTable("can't change of its Node what says which pool it is in, by neither of the ways to a Node's metadata",
		func(ctx SpecContext, change func(*corev1.Node), by, what string) {
			is := t.Node(ctx, own)
			wanted := is.DeepCopy()
			change(wanted)
			Expect(wanted).NotTo(Equal(is))
			for way, patch := range map[string]func() error{
				"the Node":   func() error { return kubelet.Patch(ctx, wanted.DeepCopy(), client.MergeFrom(is)) },
				"its status": func() error { return kubelet.Status().Patch(ctx, wanted.DeepCopy(), client.MergeFrom(is)) },
			} {
				if err := patch(); way == "the Node" || what != "taints" { // which are not metadata
					Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(And(ContainSubstring(by), ContainSubstring(what)))), way)
				}
			}
			Expect(t.Node(ctx, own)).To(And(HaveField("Labels", is.Labels), HaveField("Annotations", is.Annotations), HaveField("Spec", is.Spec)))
		},
		Entry("the label that another pool selects", label(gpuLabel, "yes"), policy, gpuLabel),
		Entry("another pool's role label", label("node-role.kubernetes.io/worker", ""), nodeRestriction, "node-role.kubernetes.io/worker"),
		Entry("its own pool's role label", func(n *corev1.Node) { delete(n.Labels, infraRole) }, nodeRestriction, infraRole),
		Entry("the name of its pool", label(poolv1.NodePoolLabel, "gpu"), policy, poolv1.NodePoolLabel),
		Entry("the name of its pool, away", func(n *corev1.Node) { delete(n.Labels, poolv1.NodePoolLabel) }, policy, poolv1.NodePoolLabel),
		Entry("an operating system that is in no pool", label(corev1.LabelOSStable, "windows"), policy, corev1.LabelOSStable),
		Entry("another server's UID", label(poolv1.NodeMetal3UUIDLabel, "0"), policy, poolv1.NodeMetal3UUIDLabel),
		Entry("a label of Poolboot's", label("pool.cluster.x-k8s.io/new", ""), policy, "pool.cluster.x-k8s.io/new"),
		Entry("what it was made for", annotation(poolv1.NodeConfigAnnotation, "default/other"), policy, poolv1.NodeConfigAnnotation),
		Entry("what it was made for, away", func(n *corev1.Node) { delete(n.Annotations, poolv1.NodeConfigAnnotation) }, policy, poolv1.NodeConfigAnnotation),
		Entry("what it booted with", annotation(poolv1.NodeCurrentConfigAnnotation, "rendered-gpu-0"), policy, poolv1.NodeCurrentConfigAnnotation),
		Entry("the taints that it has had", annotation(poolv1.NodeAppliedTaintsAnnotation, "a=b:NoSchedule"), policy, poolv1.NodeAppliedTaintsAnnotation),
		Entry("the labels that Cluster API removes", annotation(clusterv1.LabelsFromMachineAnnotation, gpuLabel), policy, clusterv1.LabelsFromMachineAnnotation),
		Entry("the annotations that Cluster API removes",
			annotation(clusterv1.AnnotationsFromMachineAnnotation, poolv1.NodeConfigAnnotation), policy, clusterv1.AnnotationsFromMachineAnnotation),
		Entry("its pool's taint", func(n *corev1.Node) { n.Spec.Taints = nil }, nodeRestriction, "taints"),
	)

	It("can't have its Node deleted by an owner that does not exist, nor keep it from being deleted", func(ctx SpecContext) {
		// NodeRestriction of an API server without the fix for CVE-2025-5187 lets it: it does not look at this user.
		config, err := lab.Workload.UserConfig("unrestricted", "system:nodes", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		for user, w := range map[string]client.Client{"its kubelet": kubelet, "one without NodeRestriction": clientOf(config)} {
			for field, change := range map[string]func(*corev1.Node){
				"metadata.ownerReferences": func(n *corev1.Node) {
					n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "0"}}
				},
				"metadata.finalizers": func(n *corev1.Node) { n.Finalizers = []string{"example.com/stay"} },
			} {
				is := t.Node(ctx, own)
				wanted := is.DeepCopy()
				change(wanted)
				for way, err := range map[string]error{
					"the Node":   w.Patch(ctx, wanted.DeepCopy(), client.MergeFrom(is)),
					"its status": w.Status().Patch(ctx, wanted.DeepCopy(), client.MergeFrom(is)),
				} {
					Expect(err).To(Satisfy(apierrors.IsForbidden), user+" "+field+" "+way)
					if user != "its kubelet" {
						Expect(err).To(MatchError(And(ContainSubstring(policy), ContainSubstring(field))), way)
					}
				}
				Expect(t.Node(ctx, own).ObjectMeta).To(And(HaveField("OwnerReferences", BeEmpty()), HaveField("Finalizers", BeEmpty())))
			}
		}
	})

	It("can't touch another Node, make one or delete its own", func(ctx SpecContext) {
		another := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another-" + t.Namespace}}
		Expect(kubelet.Create(ctx, another)).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(nodeRestriction))))
		victim := t.Node(ctx, other)
		before := victim.DeepCopy()
		metav1.SetMetaDataLabel(&victim.ObjectMeta, "example.com/any", "")
		Expect(kubelet.Patch(ctx, victim, client.MergeFrom(before))).To(Satisfy(apierrors.IsForbidden))
		Expect(kubelet.Delete(ctx, t.Node(ctx, own))).To(Satisfy(apierrors.IsForbidden), "it would register anew with labels of its choice")
	})

	It("gets no configuration any more, neither its own nor another's", func(ctx SpecContext) {
		mine, others := t.Pointer(ctx, own), t.Pointer(ctx, other)
		Expect(answer(ctx, mine)).To(Equal(401))
		Expect(answer(ctx, ignition.Pointer{URL: others.URL, Token: mine.Token, CA: mine.CA})).To(Equal(401), "another machine's overlay")
		rendered := func(of *bootstrapv1.PoolbootConfig, token string) ignition.Pointer {
			u, err := url.Parse(mine.URL)
			Expect(err).NotTo(HaveOccurred())
			u.Path = "/rendered/" + t.Namespace + "/" + other.Status.Configuration.Name
			u.RawQuery = url.Values{"config": {of.Name}, "pointer": {of.Annotations[bootstrapv1.PointerIDAnnotation]}}.Encode()
			return ignition.Pointer{URL: u.String(), Token: token, CA: mine.CA}
		}
		Expect(answer(ctx, rendered(other, others.Token))).To(Equal(200), "who may have it")
		Expect(answer(ctx, rendered(other, mine.Token))).To(Equal(401), "another pool's configuration")
		Expect(answer(ctx, rendered(own, mine.Token))).To(Equal(401), "another pool's configuration")

		Expect(overlays(ctx, other)).To(HaveLen(1))
		there := rest.CopyConfig(credential)
		there.Host, there.CAData = lab.Management.Config.Host, lab.Management.Config.CAData
		stranger, err := rest.HTTPClientFor(there)
		Expect(err).NotTo(HaveOccurred())
		response, err := stranger.Get(there.Host + "/api/v1/secrets")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(401), "its certificate counts in the workload cluster only")
		Expect(kubelet.List(ctx, &corev1.SecretList{})).To(Satisfy(apierrors.IsForbidden))
	})

	It("does not keep the kubelet from its own work", func(ctx SpecContext) {
		is := t.Node(ctx, own)
		wanted := is.DeepCopy()
		metav1.SetMetaDataLabel(&wanted.ObjectMeta, "example.com/any", "")
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, "example.com/any", "")
		Expect(kubelet.Patch(ctx, wanted, client.MergeFrom(is))).To(Succeed())

		By("letting it register on the Node that stands")
		is = wanted.DeepCopy()
		delete(wanted.Labels, corev1.LabelOSStable)
		Expect(lab.WorkloadClient.Patch(ctx, wanted, client.MergeFrom(is))).To(Succeed())
		// The host is the site's, not the spec's.
		Expect(lab.Hardware.Host(own.Status.HostRef.Name).Reboot(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, func() map[string]string { return t.Node(ctx, own).Labels }).Should(Equal(is.Labels))
	})
})
