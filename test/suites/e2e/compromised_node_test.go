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

// gpuLabel is a label that a kubelet can set and that a pool selects.
const gpuLabel = "example.com/gpu"

var _ = Describe("Root on a host that has joined", Ordered, func() {
	var (
		t *tenant.Tenant
		// own is the config of the compromised host, in pool infra. other is a host of pool gpu that is about to boot.
		own, other *bootstrapv1.PoolbootConfig
		credential *rest.Config
		kubelet    client.Client
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 0, func(p *poolv1.MachineConfigPool) {
			if p.Spec.PoolRole == "infra" {
				p.Spec.Node.Taints = []nodev1.Taint{{Key: "dedicated", Value: "infra", Effect: corev1.TaintEffectNoSchedule}}
			}
		})
		gpu := t.Pool("gpu")
		gpu.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{gpuLabel: "yes"}}
		t.Create(ctx, gpu, t.MachineConfig("52-gpu", "gpu", "/etc/gputest", "gpu"))
		t.Deploy(ctx, tenant.Deployment{Name: "gpu", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "gpu" }})
		other = t.Config(ctx, "gpu")
		Eventually(ctx, t.Condition(other, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		assignPausedHost(ctx, t, other)
		Eventually(ctx, fetchStatus).WithArguments(t.Pointer(ctx, other)).Should(Equal(200))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())

		t.AddHost(ctx, t.HostName(1))
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		own = t.Config(ctx, "infra")
		expectJoined(ctx, t, own)
		var err error
		credential, err = lab.Workload.UserConfig("system:node:"+own.Status.NodeRef.Name, "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		kubelet = newClient(credential)

		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		Eventually(ctx, func() (*admissionregistrationv1.TypeChecking, error) {
			err := lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: "poolboot-node-guard." + t.Namespace + "." + t.Namespace}, policy)
			return policy.Status.TypeChecking, err
		}).Should(HaveValue(HaveField("ExpressionWarnings", BeEmpty())))

		// The API server enforces a new or changed policy with a delay.
		Eventually(ctx, func() error {
			before := t.Node(ctx, own)
			changed := before.DeepCopy()
			changed.Labels[gpuLabel] = "yes"
			return kubelet.Patch(ctx, changed, client.MergeFrom(before), client.DryRunAll)
		}).Should(Satisfy(apierrors.IsForbidden))
	}, NodeTimeout(5*time.Minute))

	const (
		policy          = "a kubelet cannot change"
		nodeRestriction = "is not allowed to modify"
	)

	label := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels[key] = value }
	}
	annotation := func(key, value string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Annotations[key] = value }
	}
	DescribeTable("can't change the metadata that decides its Node's pool, by the Node or by its status:",
		func(ctx SpecContext, change func(*corev1.Node), by, what string) {
			before := t.Node(ctx, own)
			changed := before.DeepCopy()
			change(changed)
			Expect(changed).NotTo(Equal(before))
			for way, patch := range map[string]func() error{
				"the Node":   func() error { return kubelet.Patch(ctx, changed.DeepCopy(), client.MergeFrom(before)) },
				"its status": func() error { return kubelet.Status().Patch(ctx, changed.DeepCopy(), client.MergeFrom(before)) },
			} {
				if err := patch(); way == "the Node" || what != "taints" { // which are not metadata
					Expect(err).To(And(Satisfy(apierrors.IsForbidden), MatchError(And(ContainSubstring(by), ContainSubstring(what)))), way)
				}
			}
			Expect(t.Node(ctx, own)).To(And(HaveField("Labels", before.Labels), HaveField("Annotations", before.Annotations), HaveField("Spec", before.Spec)))
		},
		Entry("a label that another pool selects", label(gpuLabel, "yes"), policy, gpuLabel),
		Entry("another pool's role label", label("node-role.kubernetes.io/worker", ""), nodeRestriction, "node-role.kubernetes.io/worker"),
		Entry("its own pool's role label", func(n *corev1.Node) { delete(n.Labels, infraRole) }, nodeRestriction, infraRole),
		Entry("the name of its pool", label(poolv1.NodePoolLabel, "gpu"), policy, poolv1.NodePoolLabel),
		Entry("removing the name of its pool", func(n *corev1.Node) { delete(n.Labels, poolv1.NodePoolLabel) }, policy, poolv1.NodePoolLabel),
		Entry("an operating system that belongs to no pool", label(corev1.LabelOSStable, "windows"), policy, corev1.LabelOSStable),
		Entry("another server's UID", label(poolv1.NodeMetal3UUIDLabel, "0"), policy, poolv1.NodeMetal3UUIDLabel),
		Entry("a label of Poolboot", label("poolboot.io/new", ""), policy, "poolboot.io/new"),
		Entry("the PoolbootConfig that it was created for", annotation(poolv1.NodeConfigAnnotation, "default/other"), policy, poolv1.NodeConfigAnnotation),
		Entry("removing the PoolbootConfig that it was created for", func(n *corev1.Node) { delete(n.Annotations, poolv1.NodeConfigAnnotation) }, policy, poolv1.NodeConfigAnnotation),
		Entry("the rendered config that it booted with", annotation(poolv1.NodeCurrentConfigAnnotation, "rendered-gpu-0"), policy, poolv1.NodeCurrentConfigAnnotation),
		Entry("the taints that were applied to it", annotation(poolv1.NodeAppliedTaintsAnnotation, "a=b:NoSchedule"), policy, poolv1.NodeAppliedTaintsAnnotation),
		Entry("the labels that Cluster API removes", annotation(clusterv1.LabelsFromMachineAnnotation, gpuLabel), policy, clusterv1.LabelsFromMachineAnnotation),
		Entry("the annotations that Cluster API removes",
			annotation(clusterv1.AnnotationsFromMachineAnnotation, poolv1.NodeConfigAnnotation), policy, clusterv1.AnnotationsFromMachineAnnotation),
		Entry("its pool's taint", func(n *corev1.Node) { n.Spec.Taints = nil }, nodeRestriction, "taints"),
	)

	It("can't add owner references or finalizers to its Node", func(ctx SpecContext) {
		// NodeRestriction without the fix for CVE-2025-5187 allows this. It ignores the user "unrestricted", who stands
		// in for such an API server: the policy alone must refuse.
		config, err := lab.Workload.UserConfig("unrestricted", "system:nodes", "system:masters")
		Expect(err).NotTo(HaveOccurred())
		for user, c := range map[string]client.Client{"its kubelet": kubelet, "a user without NodeRestriction": newClient(config)} {
			for field, change := range map[string]func(*corev1.Node){
				"metadata.ownerReferences": func(n *corev1.Node) {
					n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "0"}}
				},
				"metadata.finalizers": func(n *corev1.Node) { n.Finalizers = []string{"example.com/stay"} },
			} {
				before := t.Node(ctx, own)
				changed := before.DeepCopy()
				change(changed)
				for way, err := range map[string]error{
					"the Node":   c.Patch(ctx, changed.DeepCopy(), client.MergeFrom(before)),
					"its status": c.Status().Patch(ctx, changed.DeepCopy(), client.MergeFrom(before)),
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

	It("can't change another Node, create a Node or delete its own", func(ctx SpecContext) {
		another := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another-" + t.Namespace}}
		Expect(kubelet.Create(ctx, another)).To(And(Satisfy(apierrors.IsForbidden), MatchError(ContainSubstring(nodeRestriction))))
		victim := t.Node(ctx, other)
		before := victim.DeepCopy()
		metav1.SetMetaDataLabel(&victim.ObjectMeta, "example.com/any", "")
		Expect(kubelet.Patch(ctx, victim, client.MergeFrom(before))).To(Satisfy(apierrors.IsForbidden))
		Expect(kubelet.Delete(ctx, t.Node(ctx, own))).To(Satisfy(apierrors.IsForbidden), "it could register again with labels of its choice")
	})

	It("can no longer fetch configuration, neither its own nor another host's", func(ctx SpecContext) {
		mine, others := t.Pointer(ctx, own), t.Pointer(ctx, other)
		Expect(fetchStatus(ctx, mine)).To(Equal(401))
		Expect(fetchStatus(ctx, ignition.Pointer{URL: others.URL, Token: mine.Token, CA: mine.CA})).To(Equal(401), "another machine's overlay")
		rendered := func(of *bootstrapv1.PoolbootConfig, token string) ignition.Pointer {
			u, err := url.Parse(mine.URL)
			Expect(err).NotTo(HaveOccurred())
			u.Path = "/rendered/" + t.Namespace + "/" + other.Status.Boot.ServedConfiguration.Name
			u.RawQuery = url.Values{"config": {of.Name}, "pointer": {of.Annotations[bootstrapv1.PointerIDAnnotation]}}.Encode()
			return ignition.Pointer{URL: u.String(), Token: token, CA: mine.CA}
		}
		Expect(fetchStatus(ctx, rendered(other, others.Token))).To(Equal(200), "the token of a host of that pool")
		Expect(fetchStatus(ctx, rendered(other, mine.Token))).To(Equal(401), "another pool's configuration")
		Expect(fetchStatus(ctx, rendered(own, mine.Token))).To(Equal(401), "another pool's configuration")

		Expect(listOverlays(ctx, other)).To(HaveLen(1))
		config := rest.CopyConfig(credential)
		config.Host, config.CAData = lab.Management.Config.Host, lab.Management.Config.CAData
		stranger, err := rest.HTTPClientFor(config)
		Expect(err).NotTo(HaveOccurred())
		response, err := stranger.Get(config.Host + "/api/v1/secrets")
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(401), "its certificate is valid in the workload cluster only")
		Expect(kubelet.List(ctx, &corev1.SecretList{})).To(Satisfy(apierrors.IsForbidden))
	})

	It("can still use the kubelet normally", func(ctx SpecContext) {
		before := t.Node(ctx, own)
		changed := before.DeepCopy()
		metav1.SetMetaDataLabel(&changed.ObjectMeta, "example.com/any", "")
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, "example.com/any", "")
		Expect(kubelet.Patch(ctx, changed, client.MergeFrom(before))).To(Succeed())

		By("registering on the existing Node")
		before = changed.DeepCopy()
		delete(changed.Labels, corev1.LabelOSStable)
		Expect(lab.WorkloadClient.Patch(ctx, changed, client.MergeFrom(before))).To(Succeed())
		// The site owns the host: it keeps running after the spec.
		Expect(lab.Hardware.Host(own.Status.HostRef.Name).Reset(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, func() map[string]string { return t.Node(ctx, own).Labels }).Should(Equal(before.Labels))
	})
})
