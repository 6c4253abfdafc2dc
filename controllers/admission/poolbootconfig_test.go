package admission

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

type configSpec = bootstrapv1.BootSpec

// newSpec returns a minimal spec, changed by edits.
func newSpec(edits ...func(*configSpec)) configSpec {
	spec := configSpec{
		ConfigSource:   bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer},
		Join:           bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet},
		NodeNameSource: bootstrapv1.NodeNameSourceMachine,
	}
	for _, edit := range edits {
		edit(&spec)
	}
	return spec
}

func newConfig(edits ...func(*configSpec)) *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "m1", Namespace: "site"}, Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: newSpec(edits...)}}
}

func newTemplate(edits ...func(*configSpec)) *bootstrapv1.PoolbootConfigTemplate {
	t := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t1", Namespace: "site"}}
	t.Spec.Template.Spec = newSpec(edits...)
	return t
}

func inline(s *configSpec) {
	s.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
}
func nodeNamedAfterHost(s *configSpec) { s.NodeNameSource = bootstrapv1.NodeNameSourceHost }
func otherKubeletPath(s *configSpec)   { s.Join.Kubelet.KubeletPath = "/opt/bin/kubelet" }
func withLabels(labels map[string]string) func(*configSpec) {
	return func(s *configSpec) { s.Node.Labels = labels }
}

func withNodeLabelRules(rules ...nodev1.NodeLabelRule) func(*configSpec) {
	return func(s *configSpec) { s.Node.LabelRules = rules }
}

// rack is a valid rule.
var rack = nodev1.NodeLabelRule{Key: "example.com/rack", ValueExpression: `host.labels["rack"]`}

// invalidSpecs are specs with which no host can boot: an edit, the field in spec, and words of the message.
var invalidSpecs = []TableEntry{
	Entry("extra Ignition that does not parse", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"1.0.0"}}`)}
	}, "extraConfig.config.ignition.version", "1.0.0"),
	Entry("extra Butane that does not parse", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Butane: "variant: fcos\nversion: 1.6.0\nfoo: bar\n"}
	}, "extraConfig.butane.foo", "line 3"),
	Entry("extra Ignition that changes what Poolboot manages", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/poolboot/kubelet.env"}]}}`)}
	}, "extraConfig.config.storage.files[0].path", "/etc/poolboot/"),
	Entry("extra Ignition that touches what kubeadm has on a control plane", func(s *configSpec) {
		s.PoolRole = poolv1.RoleControlPlane
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/kubernetes/pki/a.crt"}]}}`)}
	}, "extraConfig.config.storage.files[0].path", "reserved for the control plane"),
	Entry("extra Ignition with too many bytes, but fewer characters", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,` + strings.Repeat("é", 150_000) + `"}}]}}`)}
	}, "extraConfig.config", "262144 bytes"),
	Entry("a label rule whose expression does not compile", withNodeLabelRules(rack, nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.name +\n  host.nmae"}),
		"node.labelRules[1].valueExpression", "2:7: undefined field 'nmae'"),
	Entry("a label rule that does not return a string", withNodeLabelRules(nodev1.NodeLabelRule{Key: "cpus", ValueExpression: `host.hardware.cpu.count`}),
		"node.labelRules[0].valueExpression", "1:1: the result is of type int"),
	Entry("a label rule that is too expensive", withNodeLabelRules(nodev1.NodeLabelRule{Key: "x",
		ValueExpression: `host.hardware.disks.all(a, host.hardware.disks.all(b, a.name == b.name)) ? "a" : "b"`}), "node.labelRules[0].valueExpression", "its estimated cost is"),
}

var _ = Describe("PoolbootConfig webhook", func() {
	webhook := &PoolbootConfig{}
	booted := func(c *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
		c.Status.DataSecretName = c.Name
		c.Status.NodeRef = bootstrapv1.NodeReference{Name: "n1", UID: "u1"}
		return c
	}

	It("refuses a host without a Machine that has the name of the API server", func() {
		config := newConfig()
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "kubernetes.default.svc", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		Expect(webhook.ValidateCreate(ctx(), config)).Error().To(beRefusedAt("spec.host.nodeName", "the API server's Service"))
	})

	It("accepts a valid spec", func() {
		_, err := webhook.ValidateCreate(ctx(), newConfig(withLabels(map[string]string{"example.com/tier": "a"}), withNodeLabelRules(rack), func(s *configSpec) {
			s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"}}`)}
		}))
		Expect(err).NotTo(HaveOccurred())
	})

	It("warns of keys of the extra config that Ignition ignores without a loss", func() {
		extra := func(s *configSpec) {
			s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"},"networkd":{}}`)}
		}
		ignored := ConsistOf(HavePrefix("spec.extraConfig.config.networkd: Ignition 3.4.0 ignores this key"))
		Expect(webhook.ValidateCreate(ctx(), newConfig(extra))).To(ignored)
		Expect(webhook.ValidateUpdate(ctx(), newConfig(), newConfig(extra))).To(ignored)
	})

	DescribeTable("refuses a spec with which no host can boot",
		func(change func(*configSpec), fieldPath, word string) {
			Expect(webhook.ValidateCreate(ctx(), newConfig(change))).Error().To(beRefusedAt("spec."+fieldPath, word))
			Expect(webhook.ValidateUpdate(ctx(), newConfig(), newConfig(change))).Error().To(beRefusedAt("spec."+fieldPath, word))
		}, invalidSpecs)

	DescribeTable("refuses changes of immutable fields",
		func(before, after *bootstrapv1.PoolbootConfig, fieldPath string) {
			after.Status = before.Status
			_, err := webhook.ValidateUpdate(ctx(), before, after)
			Expect(err).To(beRefusedAt(fieldPath, "change the PoolbootConfigTemplate, and delete the Machine: a new Machine replaces it"))
		},
		Entry("the type of configSource", booted(newConfig()), newConfig(inline), "spec.configSource"),
		Entry("nodeNameSource", booted(newConfig()), newConfig(nodeNamedAfterHost), "spec.nodeNameSource"),
		Entry("any field with an inline source", booted(newConfig(inline)), newConfig(inline, otherKubeletPath), "spec"),
	)

	DescribeTable("allows other changes, for in-place updates and to correct a boot",
		func(before, after *bootstrapv1.PoolbootConfig) {
			after.Status = before.Status
			Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		},
		Entry("the join", booted(newConfig()), newConfig(otherKubeletPath)),
		Entry("the token binding", booted(newConfig()), newConfig(func(c *configSpec) {
			c.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
		})),
		Entry("labels", booted(newConfig()), newConfig(withLabels(map[string]string{"example.com/rack": "r2"}))),
		Entry("every field before the Secret exists", newConfig(), newConfig(inline, otherKubeletPath)),
	)

	It("allows metadata on, and the deletion of, a PoolbootConfig that only older rules accepted", func() {
		before := newConfig(withNodeLabelRules(nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.nmae"}))
		after := before.DeepCopy()
		after.Finalizers = []string{bootstrapv1.Finalizer}
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		Expect(webhook.ValidateDelete(ctx(), after)).Error().NotTo(HaveOccurred())
	})
})

var _ = Describe("PoolbootConfigTemplate webhook", func() {
	webhook := &PoolbootConfigTemplate{}
	request := func(dryRun bool) admission.Request {
		return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{DryRun: ptr.To(dryRun)}}
	}

	It("accepts a valid spec", func() {
		Expect(webhook.ValidateCreate(ctx(), newTemplate())).Error().NotTo(HaveOccurred())
	})

	DescribeTable("refuses a spec with which no host can boot",
		func(change func(*configSpec), fieldPath, word string) {
			Expect(webhook.ValidateCreate(ctx(), newTemplate(change))).Error().To(beRefusedAt("spec.template.spec."+fieldPath, word))
		}, invalidSpecs)

	It("refuses malformed metadata, and returns a warning about role labels", func() {
		t := newTemplate()
		t.Spec.Template.ObjectMeta.Labels = map[string]string{"node-role.kubernetes.io/infra": "", "example.com/team": "a"}
		warnings, err := webhook.ValidateCreate(ctx(), t)
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(ConsistOf(And(ContainSubstring("node-role.kubernetes.io/infra does not decide the pool"), ContainSubstring("MachineDeployment"))))
		t.Spec.Template.ObjectMeta.Labels = map[string]string{"-": "x"}
		Expect(webhook.ValidateCreate(ctx(), t)).Error().To(beRefusedAt("spec.template.metadata.labels"))
	})

	It("refuses changes, also in a dry run by a user", func() {
		for _, dryRun := range []bool{false, true} {
			_, err := webhook.ValidateUpdate(admission.NewContextWithRequest(ctx(), request(dryRun)), newTemplate(), newTemplate(otherKubeletPath))
			Expect(err).To(beRefusedAt("spec", "create a new template"))
		}
	})

	It("accepts a dry run of the topology controller, and validates the new spec", func() {
		dryRun := func(edit func(*configSpec)) error {
			t := newTemplate(edit)
			t.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
			_, err := webhook.ValidateUpdate(admission.NewContextWithRequest(ctx(), request(true)), newTemplate(), t)
			return err
		}
		Expect(dryRun(otherKubeletPath)).To(Succeed())
		Expect(dryRun(withNodeLabelRules(nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.nmae"}))).To(beRefusedAt("spec.template.spec.node.labelRules[0].valueExpression"))
	})

	It("allows labels and the deletion", func() {
		t := newTemplate()
		t.Labels = map[string]string{"a": "b"}
		Expect(webhook.ValidateUpdate(ctx(), newTemplate(), t)).Error().NotTo(HaveOccurred())
		Expect(webhook.ValidateDelete(ctx(), t)).Error().NotTo(HaveOccurred())
	})
})
