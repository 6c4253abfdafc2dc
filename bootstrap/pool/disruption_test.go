package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("The policy of a pool", func() {
	newPoolOf := func(role, text string) *poolv1.MachineConfigPool {
		return &poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{PoolRole: role, Updates: poolv1.UpdateSettings{DisruptionPolicy: policy(text)}}}
	}
	worker := newPoolOf("worker", `{files: [{path: /etc/a, actions: [{type: Drain}]}, {path: /etc/b, actions: [{type: Drain}]}],
		units: [{name: a.service, actions: [{type: Drain}]}], sshKeys: {actions: [{type: Drain}]}}`)
	all := "{config: {ignition: {version: 3.5.0}, " + `storage: {files: [{path: /etc/a, mode: 1}, {path: /etc/b, mode: 1}]}, systemd: {units: [{name: a.service, contents: x}]}, passwd: {users: [{name: core, sshAuthorizedKeys: [a]}]}}}`
	actionsWith := func(of update.Policy) (actions []string) {
		GinkgoHelper()
		for _, change := range update.New(parse("{}"), parse(all), of, update.AllCapabilities).Changes {
			actions = append(actions, update.Summary(change.Actions))
		}
		return actions
	}

	It("inherits that of worker, and replaces it entry by entry", func() {
		infra := newPoolOf("infra", `{files: [{path: /etc/b, actions: [{type: None}]}], sshKeys: {actions: [{type: None}]}}`)
		Expect(actionsWith(pool.UpdatePolicyOf(infra, worker))).To(Equal([]string{"Drain", "None", "Drain", "None"}))
		Expect(actionsWith(pool.UpdatePolicyOf(infra, nil))).To(Equal([]string{"Reboot", "None", "Reboot", "None"}))
	})

	It("of worker is its own", func() {
		Expect(actionsWith(pool.UpdatePolicyOf(worker, worker))).To(Equal([]string{"Drain", "Drain", "Drain", "Drain"}))
	})
})

var _ = Describe("The defaults below a directory", func() {
	DescribeTable("apply instead of its policy",
		func(paths []string, below ...string) {
			var p poolv1.DisruptionPolicy
			for _, path := range paths {
				p.Files = append(p.Files, poolv1.PathDisruptionPolicy{Path: path, Actions: poolv1.DisruptionActions{{Type: poolv1.ActionNone}}})
			}
			Expect(pool.DefaultsBelowPolicy(p)).To(Equal(append([]string(nil), below...)))
		},
		Entry("none below another directory", []string{"/etc/cont", "/etc/crio/policies/a", "/etc/poolboot"}),
		Entry("some", []string{"/etc/containers"}, "/etc/containers/policy.json", "/etc/containers/registries.conf", "/etc/containers/registries.conf.d", "/etc/containers/registries.d"),
		Entry("not those with a policy", []string{"/etc/containers", "/etc/containers/policy.json"}, "/etc/containers/registries.conf", "/etc/containers/registries.conf.d", "/etc/containers/registries.d"),
		Entry("all below the root", []string{"/"}, "/etc/containerd/certs.d", "/etc/containers/policy.json", "/etc/containers/registries.conf", "/etc/containers/registries.conf.d", "/etc/containers/registries.d", "/etc/crio/policies",
			"/etc/kubernetes/credential-providers", "/etc/kubernetes/kubelet.conf.d/97-poolboot-worker-reserved.conf",
			"/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf", "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool-reserved.conf", "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf", "/var/lib/kubelet/config.json"),
	)
})

var _ = Describe("A rendered config", func() {
	DescribeTable("can't be read, and the error names the field", func(text, why string) {
		Expect(pool.ParseRendered(spec(text))).Error().To(MatchError(ContainSubstring(why)))
	},
		Entry("with Butane", "{butane: x}", "spec.butane: a rendered config has Ignition only"),
		Entry("with another Ignition version", "{config: {ignition: {version: 9.9.9}}}", "spec.config: ignition.version"),
		Entry("with a wrong value", "{config: {ignition: {version: 3.5.0}, storage: {files: [{path: /a, mode: x}]}}}", "spec.config: storage.files[0].mode"),
	)
})
