package movecheck

import (
	"encoding/json"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// movable is a management cluster whose namespace metal may be moved, and another one that is ready for it.
type movable struct {
	cluster                 *clusterv1.Cluster
	machine                 *clusterv1.Machine
	metal3Machine           *unstructured.Unstructured
	host, free              *bmov1alpha1.BareMetalHost
	config                  *bootstrapv1.PoolbootConfig
	pool                    *poolv1.MachineConfigPool
	token                   *corev1.Secret
	definitions, there      map[string]*apiextensionsv1.CustomResourceDefinition
	ironic, operator        *appsv1.Deployment
	poolboot, poolbootThere *appsv1.Deployment
	ca, caThere             *corev1.Secret
	more                    []client.Object
}

func newMovable() *movable {
	meta := func(name string, owners ...string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Namespace: "metal", Name: name, UID: types.UID("uid-of-" + name), Annotations: map[string]string{}, Labels: map[string]string{}}
		for _, owner := range owners {
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Owner", Name: owner, UID: types.UID("uid-of-" + owner)})
		}
		return m
	}
	deployment := func(namespace, name, container, image string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ProviderNameLabel: "bootstrap-poolboot"}},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(1)), Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: image}}}}}}
	}
	authority := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "poolboot-system", Name: "poolboot-ca"}, Data: map[string][]byte{"tls.crt": []byte("ca")}}
	}
	m := &movable{
		cluster: &clusterv1.Cluster{ObjectMeta: meta("edge")},
		machine: &clusterv1.Machine{ObjectMeta: meta("m1", "edge"), Status: clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: "m1"}}},
		host: &bmov1alpha1.BareMetalHost{ObjectMeta: meta("rack1-u1"),
			Spec:   bmov1alpha1.BareMetalHostSpec{ConsumerRef: &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "metal", Name: "m3m1"}},
			Status: bmov1alpha1.BareMetalHostStatus{Provisioning: bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateProvisioned}}},
		free: &bmov1alpha1.BareMetalHost{ObjectMeta: meta("rack1-u2"),
			Status: bmov1alpha1.BareMetalHostStatus{Provisioning: bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable}}},
		config:      &bootstrapv1.PoolbootConfig{ObjectMeta: meta("config", "m1")},
		pool:        &poolv1.MachineConfigPool{ObjectMeta: meta("infra")},
		token:       &corev1.Secret{ObjectMeta: meta("batch"), Type: poolv1.EnrollmentTokenType},
		definitions: map[string]*apiextensionsv1.CustomResourceDefinition{}, there: map[string]*apiextensionsv1.CustomResourceDefinition{},
		ironic:   deployment("metal3", "ironic", "ironic", "quay.io/metal3-io/ironic:v29"),
		operator: deployment("metal3", "operator", "manager", "quay.io/metal3-io/baremetal-operator:v0.12"),
		poolboot: deployment("poolboot-system", "poolboot-controller-manager", "manager", "poolboot/manager:v1"), poolbootThere: deployment("poolboot-system", "poolboot-controller-manager", "manager", "poolboot/manager:v1"),
		ca: authority(), caThere: authority(),
	}
	m.operator.Labels, m.ironic.Labels = nil, nil
	m.ironic.Spec.Replicas = ptr.To(int32(0))
	m.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	conditions.Set(m.cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	conditions.Set(m.config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.NodeReadyInPoolReason})
	m.token.Labels[clusterctlv1.ClusterctlMoveLabel] = ""
	m.metal3Machine = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"dataTemplate": map[string]any{"name": "data"}}}}
	m.metal3Machine.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	m.metal3Machine.SetKind("Metal3Machine")
	m.metal3Machine.SetNamespace("metal")
	m.metal3Machine.SetName("m3m1")
	m.metal3Machine.SetUID("uid-of-m3m1")
	m.metal3Machine.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Machine", Name: "m1", UID: "uid-of-m1"}})
	for name, labels := range map[string][]string{
		"clusters.cluster.x-k8s.io/v1beta2/Cluster": {}, "machines.cluster.x-k8s.io/v1beta2/Machine": {},
		"metal3machines.infrastructure.cluster.x-k8s.io/v1beta2/Metal3Machine": {},
		"poolbootconfigs.bootstrap.cluster.x-k8s.io/v1alpha1/PoolbootConfig":   {},
		"machineconfigpools.poolboot.io/v1alpha1/MachineConfigPool":            {clusterctlv1.ClusterctlMoveLabel},
		"baremetalhosts.metal3.io/v1alpha1/BareMetalHost":                      {clusterctlv1.ClusterctlMoveLabel, clusterctlv1.ClusterctlMoveHierarchyLabel},
	} {
		m.define(name, append(labels, clusterctlv1.ClusterctlLabel)...)
	}
	return m
}

// define adds the definition of a kind, as name/version/kind, with labels to both management clusters.
func (m *movable) define(name string, labels ...string) {
	parts := strings.Split(name, "/")
	_, group, _ := strings.Cut(parts[0], ".")
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: parts[0], UID: types.UID("here-" + parts[2]), Labels: map[string]string{}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Kind: parts[2]},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: parts[1], Served: true, Storage: true}}}}
	for _, label := range labels {
		definition.Labels[label] = ""
	}
	m.definitions[parts[2]], m.there[parts[2]] = definition, definition.DeepCopy()
	m.there[parts[2]].UID = types.UID("there-" + parts[2])
}

// addRemediation adds a MachineHealthCheck of the Cluster with a template that nothing owns, and another template to
// which nothing refers.
func (m *movable) addRemediation() {
	m.define("machinehealthchecks.cluster.x-k8s.io/v1beta2/MachineHealthCheck", clusterctlv1.ClusterctlLabel)
	check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "check", UID: "check", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: m.cluster.Name, UID: m.cluster.UID}}}}
	check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
		APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3RemediationTemplate", Name: "reboot"}
	m.more = append(m.more, check)
	for _, name := range []string{"reboot", "unused"} {
		m.more = append(m.more, newUnstructured("infrastructure.cluster.x-k8s.io/v1beta2", "Metal3RemediationTemplate", name))
	}
}

// addAddress adds an IPPool without a Cluster, and an IPAddress that it owns together with the Metal3Machine.
func (m *movable) addAddress() *unstructured.Unstructured {
	m.define("ippools.ipam.metal3.io/v1alpha1/IPPool", clusterctlv1.ClusterctlLabel)
	m.define("ipaddresses.ipam.metal3.io/v1alpha1/IPAddress", clusterctlv1.ClusterctlLabel)
	pool, address := newUnstructured("ipam.metal3.io/v1alpha1", "IPPool", "rack"), newUnstructured("ipam.metal3.io/v1alpha1", "IPAddress", "address")
	address.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "v1", Kind: "IPPool", Name: "rack", UID: "rack"}, {APIVersion: "v1", Kind: "Metal3Machine", Name: "m3m1", UID: m.metal3Machine.GetUID()}})
	m.more = append(m.more, pool, address)
	return pool
}

func newUnstructured(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace("metal")
	o.SetName(name)
	o.SetUID(types.UID(name))
	return o
}

// run checks the move, and returns the exit code and what is printed.
func (m *movable) run(args ...string) (int, report, string) {
	GinkgoHelper()
	here := append([]client.Object{m.cluster, m.machine, m.metal3Machine, m.host, m.free, m.config, m.pool, m.token, m.ironic, m.operator, m.poolboot, m.ca}, m.more...)
	var there []client.Object
	for _, d := range m.definitions {
		here = append(here, d)
	}
	for _, d := range m.there {
		there = append(there, d)
	}
	there = append(there, m.poolbootThere, m.caThere)
	other := clitest.NewFakeClientBuilder().WithObjects(there...).Build()
	to := &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder().WithObjects(here...).Build()}
	text := func(args ...string) (int, string, string) {
		r := clitest.RunOn(to, func(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
			return newCommand(&options{streams: streams, connection: to, openTarget: func(string) (client.Reader, error) { return other, nil }})
		}, append([]string{"move-check", "-n", "metal"}, args...)...)
		return r.Code, r.Out, r.ErrOut
	}
	code, document, why := text(append([]string{"-o", "json"}, args...)...)
	checked := report{}
	Expect(json.Unmarshal([]byte(document), &checked)).To(Succeed(), why)
	shownCode, shown, _ := text(args...)
	Expect(shownCode).To(Equal(code))
	return code, checked, shown
}

var _ = Describe("move-check", func() {
	It("reports that a move is safe", func() {
		code, checked, shown := newMovable().run("--to-kubeconfig", "other.kubeconfig")
		Expect(checked.Traps).To(BeEmpty())
		Expect(checked).To(And(HaveField("Safe", true), HaveField("Namespace", "metal"), HaveField("Moved", 8)))
		Expect(code).To(BeZero())
		Expect(shown).To(Equal("namespace metal: objects that would be moved: 8; safe to move\n"))
	})

	DescribeTable("names the trap and its remedy", func(effect Effect, object, message, remedy string, set func(*movable)) {
		m := newMovable()
		set(m)
		code, checked, shown := m.run("--to-kubeconfig", "other.kubeconfig")
		Expect(checked.Traps).To(ConsistOf(And(HaveField("Effect", effect), HaveField("Object", object),
			HaveField("Message", ContainSubstring(message)), HaveField("Remedy", ContainSubstring(remedy)))))
		Expect(checked.Safe).To(Equal(effect == Note))
		if effect == Note {
			Expect(code).To(BeZero())
		} else {
			Expect(code).To(Equal(2))
			Expect(shown).To(HaveSuffix("NOT safe to move: 1 would hang or be lost\n"))
		}
		Expect(shown).To(And(ContainSubstring(object), ContainSubstring("To do: ")))
	},
		Entry("a Cluster that is paused since an aborted move", Hangs, "Cluster metal/edge", "refuses to start", `kubectl -n metal patch cluster edge --type=merge`,
			func(m *movable) { m.cluster.Spec.Paused = ptr.To(true) }),
		Entry("a Cluster that a person paused", Hangs, "Cluster metal/edge", clusterv1.PausedAnnotation, "kubectl -n metal annotate cluster edge cluster.x-k8s.io/paused-",
			func(m *movable) { m.cluster.Annotations[clusterv1.PausedAnnotation] = "" }),
		Entry("a Cluster without a control plane", Hangs, "Cluster metal/edge", "control plane", "wait", func(m *movable) { m.cluster.Status.Conditions = nil }),
		Entry("a ClusterClass that is paused", Hangs, "ClusterClass metal/class", clusterv1.PausedAnnotation, "annotate clusterclass class", func(m *movable) {
			m.more = append(m.more, &clusterv1.ClusterClass{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "class", Annotations: map[string]string{clusterv1.PausedAnnotation: ""}}})
		}),
		Entry("a Machine without a Node", Hangs, "Machine metal/m1", "no Node", "wait", func(m *movable) { m.machine.Status.NodeRef = clusterv1.MachineNodeReference{} }),
		Entry("a released host that blocks the move", Hangs, "BareMetalHost metal/rack1-u2", "waits until it times out", "kubectl -n metal annotate baremetalhost rack1-u2 clusterctl.cluster.x-k8s.io/block-move-",
			func(m *movable) { m.free.Annotations[clusterctlv1.BlockMoveAnnotation] = "" }),
		Entry("a host of a Metal3Machine that was deleted", Hangs, "BareMetalHost metal/rack1-u2", "waits until it times out", "block-move-", func(m *movable) {
			m.free.Annotations[clusterctlv1.BlockMoveAnnotation] = ""
			m.free.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "gone"}
		}),
		Entry("a target that is this management cluster", Lost, "the target", "it is this management cluster", "the other management cluster", func(m *movable) { m.there = m.definitions }),
		Entry("Ironic that runs", Lost, "Deployment metal3/ironic", "wipe the server", "kubectl -n metal3 scale deployment ironic --replicas=0", func(m *movable) { m.ironic.Spec.Replicas = ptr.To(int32(1)) }),
		Entry("Ironic without a Deployment in the cluster", Note, "Ironic", "this cluster has no Deployment of Ironic", "stop Ironic", func(m *movable) { m.ironic.Spec.Template.Spec.Containers[0] = corev1.Container{Name: "x", Image: "x"} }),
		Entry("an operator that does not run while its webhook does", Hangs, "Deployment baremetal-operator", "failurePolicy Fail", "stop Ironic instead", func(m *movable) {
			m.operator.Spec.Replicas = ptr.To(int32(0))
			m.more = append(m.more, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bmo"}, Webhooks: []admissionv1.ValidatingWebhook{{
				Name: "baremetalhost.metal3.io", FailurePolicy: ptr.To(admissionv1.Fail),
				Rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: []string{"metal3.io"}, Resources: []string{"baremetalhosts"}}}}}}})
		}),
		Entry("a host that is being provisioned", Lost, "BareMetalHost metal/rack1-u1", "starts again", "wait", func(m *movable) { m.host.Status.Provisioning.State = bmov1alpha1.StateProvisioning }),
		Entry("a host that is being inspected", Note, "BareMetalHost metal/rack1-u2", "inspecting", "wait", func(m *movable) { m.free.Status.Provisioning.State = bmov1alpha1.StateInspecting }),
		Entry("a host that the last move has left without status", Lost, "BareMetalHost metal/rack1-u1", "not restored since the last move", "wait until the baremetal-operator", func(m *movable) {
			m.host.Annotations = map[string]string{bmov1alpha1.StatusAnnotation: "{}", bmov1alpha1.PausedAnnotation: "metal3.io/capm3"}
			m.host.Status = bmov1alpha1.BareMetalHostStatus{}
		}),
		Entry("a provisioned host that no Metal3Machine has", Lost, "BareMetalHost metal/rack1-u2", "install it again", bmov1alpha1.StatusAnnotation,
			func(m *movable) { m.free.Status.Provisioning.State = bmov1alpha1.StateProvisioned }),
		Entry("an enrollment token that would not be moved", Lost, "Secret metal/batch", "would not be moved", "kubectl -n metal label secret batch clusterctl.cluster.x-k8s.io/move=", func(m *movable) { m.token.Labels = nil }),
		Entry("credentials of a BMC that nothing owns", Lost, "Secret metal/bmc", "would not be moved", "label secret bmc", func(m *movable) {
			m.free.Spec.BMC.CredentialsName = "bmc"
			m.more = append(m.more, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "bmc", UID: "bmc"}})
		}),
		Entry("pools whose kind clusterctl does not know", Lost, "MachineConfigPool metal/infra", "would not be moved", "kubectl label crd machineconfigpools.poolboot.io clusterctl.cluster.x-k8s.io=",
			func(m *movable) { m.definitions["MachineConfigPool"].Labels = nil }),
		Entry("Metal3Machines whose kind clusterctl does not know, and not that they use no host", Lost, "Metal3Machine metal/m3m1", "would not be moved",
			"kubectl label crd metal3machines.infrastructure.cluster.x-k8s.io clusterctl.cluster.x-k8s.io=", func(m *movable) { m.definitions["Metal3Machine"].Labels = nil }),
		Entry("a template of a MachineHealthCheck that nothing owns", Lost, "Metal3RemediationTemplate metal/reboot", "MachineHealthCheck metal/check refers to it",
			"kubectl -n metal label metal3remediationtemplate reboot clusterctl.cluster.x-k8s.io/move=", func(m *movable) {
				m.define("metal3remediationtemplates.infrastructure.cluster.x-k8s.io/v1beta2/Metal3RemediationTemplate", clusterctlv1.ClusterctlLabel)
				m.addRemediation()
			}),
		Entry("a template of a kind that clusterctl does not know", Lost, "Metal3RemediationTemplate metal/reboot", "would not be moved",
			"kubectl label crd metal3remediationtemplates.infrastructure.cluster.x-k8s.io clusterctl.cluster.x-k8s.io=", func(m *movable) {
				m.define("metal3remediationtemplates.infrastructure.cluster.x-k8s.io/v1beta2/Metal3RemediationTemplate")
				m.addRemediation()
			}),
		Entry("a MachineDrainRule, which nothing owns", Lost, "MachineDrainRule metal/storage", "would not be moved", "kubectl -n metal label machinedrainrule storage clusterctl.cluster.x-k8s.io/move=", func(m *movable) {
			m.define("machinedrainrules.cluster.x-k8s.io/v1beta2/MachineDrainRule", clusterctlv1.ClusterctlLabel)
			m.more = append(m.more, &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "storage", UID: "storage"}})
		}),
		Entry("network data of a host that nothing owns", Lost, "Secret metal/net", "would not be moved", "label secret net", func(m *movable) {
			m.free.Spec.PreprovisioningNetworkDataName = "net"
			m.more = append(m.more, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "net", UID: "net"}})
		}),
		Entry("a template that no Cluster owns", Lost, "PoolbootConfigTemplate metal/hosts", "would not be moved", "kubectl label crd poolbootconfigtemplates", func(m *movable) {
			m.define("poolbootconfigtemplates.bootstrap.cluster.x-k8s.io/v1alpha1/PoolbootConfigTemplate")
			m.more = append(m.more, &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "hosts", UID: "hosts"}})
		}),
		Entry("an IPPool that no Cluster owns", Lost, "IPPool metal/rack", "would not be moved", "kubectl -n metal label ippool rack clusterctl.cluster.x-k8s.io/move=", func(m *movable) { m.addAddress() }),
		Entry("a Metal3DataTemplate that no Cluster owns", Lost, "Metal3DataTemplate metal/data", "would not be moved", "kubectl -n metal label metal3datatemplate data clusterctl.cluster.x-k8s.io/move=", func(m *movable) {
			m.define("metal3datatemplates.infrastructure.cluster.x-k8s.io/v1beta1/Metal3DataTemplate", clusterctlv1.ClusterctlLabel)
			m.more = append(m.more, newUnstructured("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3DataTemplate", "data"))
		}),
		Entry("a Metal3Machine without a data template", Note, "Metal3Machine metal/m3m1", "stays Unknown", "nothing", func(m *movable) { delete(m.metal3Machine.Object, "spec") }),
		Entry("a rotation in progress", Note, "PoolbootConfig metal/config", "being rotated", bootstrapv1.RotateTokenAnnotation,
			func(m *movable) { m.config.Annotations[bootstrapv1.RotateTokenAnnotation] = "" }),
		Entry("a host that boots", Note, "PoolbootConfig metal/config", "Preparing", "boots", func(m *movable) {
			m.config.Status.Conditions = nil
			m.config.Status.Requests.RequestedTime = ptr.To(metav1.NowMicro())
		}),
		Entry("a host in the middle of its update", Note, "PoolbootConfig metal/config", "in the stage Draining of an update", "rollout status", func(m *movable) { m.config.Status.Update.Stage = bootstrapv1.UpdateDraining }),
		Entry("a target with another CA, while hosts run agents", Lost, "Secret poolboot-system/poolboot-ca at the target", "The agents of running hosts (1) would never follow", "copy the Secret", func(m *movable) {
			m.config.Status.Update.DesiredRevision = "revision"
			m.caThere.Data["tls.crt"] = []byte("other")
		}),
		Entry("a target without a kind", Hangs, "CustomResourceDefinition machineconfigpools.poolboot.io at the target", "stop halfway", "install its provider", func(m *movable) { delete(m.there, "MachineConfigPool") }),
		Entry("a target with an older version of a kind", Hangs, "CustomResourceDefinition machines.cluster.x-k8s.io at the target", "v1beta2 is not served", "later one",
			func(m *movable) { m.there["Machine"].Spec.Versions[0].Name = "v1beta1" }),
		Entry("a target whose kinds could not be moved again", Note, "CustomResourceDefinition machines.cluster.x-k8s.io at the target", "lacks the label", "label crd", func(m *movable) { m.there["Machine"].Labels = nil }),
		Entry("a target where Poolboot does not run", Hangs, "Poolboot at the target", "does not run", "install and start it", func(m *movable) { m.poolbootThere.Spec.Replicas = ptr.To(int32(0)) }),
		Entry("a target with another version of Poolboot", Note, "Poolboot at the target", "v2 runs in the target", "same version", func(m *movable) { m.poolbootThere.Spec.Template.Spec.Containers[0].Image = "poolboot/manager:v2" }),
		Entry("a target with another CA", Note, "Secret poolboot-system/poolboot-ca at the target", "do not trust", "copy the Secret", func(m *movable) { m.caThere.Data["tls.crt"] = []byte("other") }),
	)

	It("counts an object with several owners as moved only if all of them are", func() {
		m := newMovable()
		pool := m.addAddress()
		_, checked, _ := m.run()
		Expect(checked.Moved).To(Equal(8), "the address stays with its pool")
		pool.SetLabels(map[string]string{clusterctlv1.ClusterctlMoveLabel: ""})
		_, checked, _ = m.run()
		Expect(checked).To(And(HaveField("Safe", true), HaveField("Moved", 10)))
	})

	It("lists losses first, and counts another CA as a loss while a host boots", func() {
		m := newMovable()
		m.cluster.Spec.Paused = ptr.To(true)
		m.config.Status.Conditions, m.config.Status.Requests.RequestedTime = nil, ptr.To(metav1.NowMicro())
		m.caThere.Data["tls.crt"] = []byte("other")
		_, checked, _ := m.run("--to-kubeconfig", "other.kubeconfig")
		Expect(checked.Traps).To(HaveExactElements(HaveField("Effect", Lost), HaveField("Effect", Hangs), HaveField("Effect", Note)))
	})

	It("does not check a target without --to-kubeconfig", func() {
		m := newMovable()
		m.there = nil
		_, checked, _ := m.run()
		Expect(checked.Traps).To(BeEmpty())
	})

	It("exits with 1 when it can't read a cluster", func() {
		clitest.ExpectError(clitest.RunOn(input.NewConnection(), New, "move-check", "--kubeconfig", "nowhere.kubeconfig"), 1, "nowhere.kubeconfig")
		clitest.ExpectError(clitest.Run("", New, "move-check", "-o", "table"), 1, "--output table is not known")
	})
})
