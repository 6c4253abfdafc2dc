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
)

type configSpec = bootstrapv1.BootSpec

// aSpec returns what the CRD's defaults make of a minimal spec, changed by edits.
func aSpec(edits ...func(*configSpec)) configSpec {
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

func aConfig(edits ...func(*configSpec)) *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "m1", Namespace: "site"}, Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: aSpec(edits...)}}
}

func aTemplate(edits ...func(*configSpec)) *bootstrapv1.PoolbootConfigTemplate {
	t := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t1", Namespace: "site"}}
	t.Spec.Template.Spec = aSpec(edits...)
	return t
}

func inline(s *configSpec) {
	s.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
}
func nameOfHost(s *configSpec)   { s.NodeNameSource = bootstrapv1.NodeNameSourceHost }
func otherKubelet(s *configSpec) { s.Join.Kubelet.KubeletPath = "/opt/bin/kubelet" }
func withLabels(of map[string]string) func(*configSpec) {
	return func(s *configSpec) { s.NodeLabels = of }
}

func withNodeLabelRules(of ...nodev1.NodeLabelRule) func(*configSpec) {
	return func(s *configSpec) { s.NodeLabelRules = of }
}

// rack is a rule that there is nothing wrong with.
var rack = nodev1.NodeLabelRule{Key: "example.com/rack", ValueExpression: `host.labels["rack"]`}

// badSpecs are specs that no host could boot with: an edit, the field below spec, and words of the message.
var badSpecs = []TableEntry{
	Entry("extra Ignition that does not parse", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"1.0.0"}}`)}
	}, "extraConfig.config.ignition.version", "1.0.0"),
	Entry("extra Butane that does not parse", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Butane: "variant: fcos\nversion: 1.6.0\nfoo: bar\n"}
	}, "extraConfig.butane.foo", "line 3"),
	Entry("extra Ignition that takes what is Poolboot's", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/poolboot/kubelet.env"}]}}`)}
	}, "extraConfig.config.storage.files[0].path", "/etc/poolboot/"),
	Entry("extra Ignition of more bytes than it may have, though not of more characters", func(s *configSpec) {
		s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,` + strings.Repeat("é", 150_000) + `"}}]}}`)}
	}, "extraConfig.config", "262144 bytes"),
	Entry("a label rule whose expression does not compile", withNodeLabelRules(rack, nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.name +\n  host.nmae"}),
		"nodeLabelRules[1].valueExpression", "2:7: undefined field 'nmae'"),
	Entry("a label rule that is no text", withNodeLabelRules(nodev1.NodeLabelRule{Key: "cpus", ValueExpression: `host.hardware.cpu.count`}),
		"nodeLabelRules[0].valueExpression", "1:1: it gives int"),
	Entry("a label rule that may cost too much", withNodeLabelRules(nodev1.NodeLabelRule{Key: "x",
		ValueExpression: `host.hardware.disks.all(a, host.hardware.disks.all(b, a.name == b.name)) ? "a" : "b"`}), "nodeLabelRules[0].valueExpression", "cost too much"),
}

var _ = Describe("PoolbootConfig webhook", func() {
	webhook := &PoolbootConfig{}
	booted := func(c *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
		c.Status.DataSecretName = c.Name
		c.Status.NodeRef = bootstrapv1.NodeReference{Name: "n1", UID: "u1"}
		return c
	}

	It("refuses a host without a Machine that has the API server's name", func() {
		config := aConfig()
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "kubernetes.default.svc", Enrollment: bootstrapv1.EnrolledHost{Name: "edge", Address: "192.0.2.7"}}
		Expect(webhook.ValidateCreate(ctx(), config)).Error().To(refuse("spec.host.nodeName", "the API server's Service"))
	})

	It("takes a spec that a host can boot with", func() {
		_, err := webhook.ValidateCreate(ctx(), aConfig(withLabels(map[string]string{"example.com/tier": "a"}), withNodeLabelRules(rack), func(s *configSpec) {
			s.ExtraConfig = &bootstrapv1.ExtraConfig{Config: raw(`{"ignition":{"version":"3.4.0"}}`)}
		}))
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("refuses what no host could boot with",
		func(spoil func(*configSpec), fieldPath, word string) {
			Expect(webhook.ValidateCreate(ctx(), aConfig(spoil))).Error().To(refuse("spec."+fieldPath, word))
			Expect(webhook.ValidateUpdate(ctx(), aConfig(), aConfig(spoil))).Error().To(refuse("spec."+fieldPath, word))
		}, badSpecs)

	DescribeTable("refuses to change what is written already",
		func(before, after *bootstrapv1.PoolbootConfig, fieldPath string) {
			after.Status = before.Status
			_, err := webhook.ValidateUpdate(ctx(), before, after)
			Expect(err).To(refuse(fieldPath, "change the PoolbootConfigTemplate, and delete the Machine: another one takes its place"))
		},
		Entry("where the configuration comes from", booted(aConfig()), aConfig(inline), "spec.configSource"),
		Entry("whose name the Node has", booted(aConfig()), aConfig(nameOfHost), "spec.nodeNameSource"),
		Entry("anything of an inline one", booted(aConfig(inline)), aConfig(inline, otherKubelet), "spec"),
	)

	DescribeTable("lets the rest change, for in-place updates and for people who fix a boot that fails",
		func(before, after *bootstrapv1.PoolbootConfig) {
			after.Status = before.Status
			Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		},
		Entry("how a host joins", booted(aConfig()), aConfig(otherKubelet)),
		Entry("from where a token is good", booted(aConfig()), aConfig(func(c *configSpec) {
			c.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
		})),
		Entry("labels", booted(aConfig()), aConfig(withLabels(map[string]string{"example.com/rack": "r2"}))),
		Entry("everything before the Secret stands", aConfig(), aConfig(inline, otherKubelet)),
	)

	It("lets a config that older rules took be labelled and deleted", func() {
		before := aConfig(withNodeLabelRules(nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.nmae"}))
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

	It("takes a spec that hosts can boot with", func() {
		Expect(webhook.ValidateCreate(ctx(), aTemplate())).Error().NotTo(HaveOccurred())
	})

	DescribeTable("refuses what no host could boot with",
		func(spoil func(*configSpec), fieldPath, word string) {
			Expect(webhook.ValidateCreate(ctx(), aTemplate(spoil))).Error().To(refuse("spec.template.spec."+fieldPath, word))
		}, badSpecs)

	It("refuses malformed metadata", func() {
		t := aTemplate()
		t.Spec.Template.ObjectMeta.Labels = map[string]string{"node-role.kubernetes.io/infra": "", "example.com/team": "a"}
		warnings, err := webhook.ValidateCreate(ctx(), t)
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(ConsistOf(And(ContainSubstring("node-role.kubernetes.io/infra decides no pool"), ContainSubstring("MachineDeployment"))))
		t.Spec.Template.ObjectMeta.Labels = map[string]string{"-": "x"}
		Expect(webhook.ValidateCreate(ctx(), t)).Error().To(refuse("spec.template.metadata.labels"))
	})

	It("is immutable, also on a dry run by a person", func() {
		for _, dryRun := range []bool{false, true} {
			_, err := webhook.ValidateUpdate(admission.NewContextWithRequest(ctx(), request(dryRun)), aTemplate(), aTemplate(otherKubelet))
			Expect(err).To(refuse("spec", "make a new template"))
		}
	})

	It("takes the topology controller's dry run, and looks at what it would write", func() {
		dryRun := func(edit func(*configSpec)) error {
			t := aTemplate(edit)
			t.Annotations = map[string]string{clusterv1.TopologyDryRunAnnotation: ""}
			_, err := webhook.ValidateUpdate(admission.NewContextWithRequest(ctx(), request(true)), aTemplate(), t)
			return err
		}
		Expect(dryRun(otherKubelet)).To(Succeed())
		Expect(dryRun(withNodeLabelRules(nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.nmae"}))).To(refuse("spec.template.spec.nodeLabelRules[0].valueExpression"))
	})

	It("can be labelled and deleted", func() {
		t := aTemplate()
		t.Labels = map[string]string{"a": "b"}
		Expect(webhook.ValidateUpdate(ctx(), aTemplate(), t)).Error().NotTo(HaveOccurred())
		Expect(webhook.ValidateDelete(ctx(), t)).Error().NotTo(HaveOccurred())
	})
})
