package diff

import (
	"context"
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// runDiff runs diff on a cluster.
func runDiff(to input.Connection, args ...string) clitest.Result {
	return clitest.RunOn(to, New, append([]string{"diff"}, args...)...)
}

var _ = Describe("diff", func() {
	worker, infra := clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra")
	live := []string{worker, infra, clitest.Config("50-motd", "worker", clitest.Motd("worker")), clitest.Config("51-infra", "infra", `{kernelArguments: [quiet]}`)}

	// changing returns what diff prints of the pool infra when its MachineConfig 51-infra goes from one spec to
	// another.
	changing := func(from, to string) string {
		GinkgoHelper()
		r := runDiff(clitest.NewFakeConnection([]string{worker, infra, clitest.Config("51-infra", "infra", from)}), "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", to)))
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Code).To(Equal(1))
		return r.Out
	}
	// ignition is the spec of a MachineConfig with something in its Ignition, in YAML's flow style.
	ignition := func(content string) string { return "{config: {ignition: {version: 3.2.0}, " + content + "}}" }
	files := func(entry string) string { return ignition("storage: {files: [{path: /etc/a, " + entry + "}]}") }
	unit := func(entry string) string { return ignition("systemd: {units: [{name: a.service, " + entry + "}]}") }
	user := func(entry string) string { return ignition("passwd: {users: [{name: core, " + entry + "}]}") }

	It("prints nothing and exits with 0 when the files change nothing", func() {
		Expect(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", live...))).To(Equal(clitest.Result{}))
	})

	It("notes a MachineConfig that no pool selects, and what the pools select", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Config("99-other", "gpu", clitest.Motd("gpu"))))
		Expect(r).To(Equal(clitest.Result{ErrOut: "note: MachineConfig edge/99-other: metadata.labels: no pool selects them yet, so no host gets this MachineConfig. If you do not create its pool next, correct them: the pools select " +
			"infra: machineconfiguration.openshift.io/role=infra; worker: machineconfiguration.openshift.io/role=worker\n"}))
	})

	It("shows what the deletion of a MachineConfig does, by a label that no pool selects", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "none", `{kernelArguments: [quiet]}`)))
		Expect(r.Out).To(And(HavePrefix("MachineConfigPool edge/infra "), HaveSuffix("  - kernelArguments\n      -quiet\n")))
		Expect(r.Code).To(Equal(1))
	})

	It("notes what kubectl apply would warn of in the objects that change", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", files("mode: 644")), clitest.Config("52-unit", "infra", unit(`enabled: true, contents: "[Unit]\nA=1"`)),
			strings.Replace(infra, "machineconfiguration.openshift.io/role: infra", "machineconfiguration.openshift.io/role: infa", 1)))
		Expect(r.ErrOut).To(And(ContainSubstring("note: MachineConfig edge/51-infra: spec.config.storage.files[0].mode: 644 is 01204"),
			ContainSubstring("note: MachineConfig edge/52-unit: spec.config.systemd.units[0].enabled: a.service has no section [Install]")))
	})

	It("exits with 1 and shows each pool, its machines and what changes", func() {
		to := clitest.NewFakeConnection(live, clitest.PoolbootConfig("infra", "infra-b", "host-7"), clitest.PoolbootConfig("infra", "infra-a", ""), clitest.PoolbootConfig("worker", "plain", "host-8"))
		r := runDiff(to, "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", `{kernelArguments: [quiet, nosmt], kernelType: realtime}`)))
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Code).To(Equal(1))
		Expect(r.Out).To(MatchRegexp(`^MachineConfigPool edge/infra \(Cluster infra-1\)
  config:   rendered-infra-[0-9a-f]{32} -> rendered-infra-[0-9a-f]{32}
  reboot:   yes: kernelArguments, kernelType
  machines: 2
    Machine infra-a
    Machine infra-b, Node host-7
  ~ kernelArguments
       quiet
      \+nosmt
  ~ kernelType
      -default
      \+realtime
$`))
	})

	It("only counts the scripts and units of Poolboot that change", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", infra+"  kubelet: {autoSizingReserved: true}\n"))
		Expect(r.Out).To(And(ContainSubstring("link /etc/kubernetes/kubelet.conf.d/98-poolboot-pool-reserved.conf\n"), ContainSubstring("\n  ~ Poolboot's own files: 2\n")))
		Expect(r.Out).NotTo(Or(ContainSubstring("file /etc/poolboot/system-reserved.sh\n"), ContainSubstring("15-poolboot-reserved.conf\n")))
	})

	It("shows every pool that inherits a change, in order", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Config("50-motd", "worker", clitest.Motd("hello"))))
		Expect(r.Out).To(MatchRegexp(`(?s)^MachineConfigPool edge/infra .*-  worker\n.*\+  hello\n.*\n\nMachineConfigPool edge/worker .*\+  hello\n`))
	})

	It("names each entry that replaces another MachineConfig's by this change", func() {
		const line = "  ! file /etc/motd of MachineConfig 60-motd replaces that of 50-motd\n"
		second := clitest.Config("60-motd", "infra", clitest.Motd("infra"))
		Expect(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", second)).Out).To(ContainSubstring(line))
		changed := clitest.WriteFile("new.yaml", clitest.Config("60-motd", "infra", clitest.Motd("other")))
		Expect(runDiff(clitest.NewFakeConnection(append(live, second)), "-f", changed).Out).To(And(ContainSubstring("other"), Not(ContainSubstring("replaces"))))
	})

	It("compares a new pool with worker, which its Nodes are in now", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Pool("infra-1", "gpu"), clitest.Config("52-gpu", "gpu", `{extensions: [gpu-driver]}`)))
		Expect(r.Code).To(Equal(1))
		Expect(r.Out).To(MatchRegexp(`(?s)config:   new, compared with rendered-worker-\w+ ->\s+rendered-gpu-.*  \+ extensions\n.*\+gpu-driver\n`))
		Expect(r.Out).To(MatchRegexp(`reboot:   yes: extensions \(on hosts that move here from\s+worker\)`))
		Expect(r.Out).NotTo(ContainSubstring("motd"))
		Expect(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Pool("infra-1", "gpu"))).Out).To(And(
			ContainSubstring("reboot:   no: nothing changes on the host"), ContainSubstring("no change: only the notation or the name differs")))
	})

	It("shows everything in the first pool of a Cluster", func() {
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra-1"}}
		r := runDiff(clitest.NewFakeConnection(nil, cluster), "-f", clitest.WriteFile("new.yaml", live...))
		Expect(r.Out).To(MatchRegexp(`(?s)config:   new, compared with nothing -> rendered-worker-.*\+ file /etc/motd\n`))
		Expect(r.Out).To(And(ContainSubstring("  reboot:   no: the pool has no hosts\n"), Not(ContainSubstring("reboot:   yes")), Not(ContainSubstring("ignition"))))
		Expect(r.ErrOut).To(BeEmpty())
	})

	It("compares the first pool worker of a Cluster, and a pool that waited for it, with nothing", func() {
		r := runDiff(clitest.NewFakeConnection([]string{infra}), "-f", clitest.WriteFile("new.yaml", worker))
		Expect(r.ErrOut).To(And(ContainSubstring(`note: MachineConfigPool "infra" can't be rendered now (`), HaveSuffix("): the comparison is with nothing\n"), Not(ContainSubstring(`MachineConfigPool "worker"`))))
		Expect(r.Out).To(And(MatchRegexp("config:   nothing -> rendered-infra-"), MatchRegexp(`config:   new, compared with nothing -> rendered-worker-`)))
	})

	It("keeps what a file leaves out and kubectl apply has not set, as kubectl apply does", func() {
		applied := strings.Replace(infra, "name: infra\n", `name: infra
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"clusterName":"infra-1","poolRole":"infra","node":{"labels":{"a":"1"}}}}'}
`, 1)
		changed := strings.Replace(applied, "spec:\n", "spec:\n  paused: true\n  node: {labels: {a: '1', b: '2'}}\n", 1)
		r := runDiff(clitest.NewFakeConnection([]string{worker, changed}), "-f", clitest.WriteFile("new.yaml", strings.Replace(infra, "spec:\n", "spec:\n  node: {labels: {c: '3'}}\n", 1)))
		Expect(r.Out).To(And(ContainSubstring("  - node.labels a: 1\n"), Not(ContainSubstring("node.labels b")), Not(ContainSubstring("- paused"))))
		changed = strings.Replace(changed, `{"spec"`, `{"other"`, 1)
		Expect(runDiff(clitest.NewFakeConnection([]string{worker, changed}), "-f", clitest.WriteFile("new.yaml", infra))).To(Equal(clitest.Result{}))
	})

	It("gives a file without a namespace that of the command line, also if kubectl apply has recorded it", func() {
		applied := strings.Replace(infra, "name: infra\n", `name: infra
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"metadata":{"name":"infra","namespace":"edge"}}'}
`, 1)
		r := runDiff(clitest.NewFakeConnection([]string{worker, applied}), "-f", clitest.WriteFile("new.yaml", strings.Replace(infra, "spec:\n", "spec:\n  paused: true\n", 1)))
		Expect(r.Out).To(HavePrefix("MachineConfigPool edge/infra (Cluster infra-1)\n"))
	})

	It("says what happens to a host for which an earlier change waits, when the pool is resumed", func() {
		host := clitest.PoolbootConfig("infra", "a", "node-a")
		record.RevokeToken(host)
		earlier := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "rendered-earlier", Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}}
		host.Status.Boot.ServedConfiguration.Name, host.Status.Update.DesiredRevision = earlier.Name, strings.Repeat("0", 64)
		paused := strings.Replace(infra, "spec:\n", "spec:\n  paused: true\n", 1)
		r := runDiff(clitest.NewFakeConnection([]string{worker, paused, clitest.Config("51-infra", "infra", `{kernelType: realtime}`)}, earlier, host), "-f", clitest.WriteFile("new.yaml", infra))
		Expect(r.Out).To(And(ContainSubstring("  - paused: true\n"), ContainSubstring("Machine a, Node node-a: Reboot, because it still runs rendered-earlier\n")))
	})

	It("reports that a pool is paused", func() {
		paused := strings.Replace(infra, "spec:\n", "spec:\n  paused: true\n", 1)
		r := runDiff(clitest.NewFakeConnection([]string{worker, paused}), "-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", clitest.Motd("x"))))
		Expect(r.Out).To(ContainSubstring("paused:   yes"))
	})

	DescribeTable("shows what changes",
		func(from, to, shown string) { Expect(changing(from, to)).To(ContainSubstring("machines: 0\n" + shown)) },
		Entry("a new file", "{}", files(`mode: 0644, contents: {source: "data:,one%0Atwo%0A"}`),
			"  + file /etc/a\n      +contents:\n      +  one\n      +  two\n      +mode: 0644\n      +overwrite: true\n"),
		Entry("a removed file", files(`contents: {source: "data:,one%0A"}`), "{fips: false}", "  - file /etc/a\n"),
		Entry("lines of a file", files(`contents: {source: "data:,one%0Atwo"}`), files(`contents: {source: "data:,one%0A2"}`),
			"  ~ file /etc/a\n       contents:\n         one\n      -  two\n      +  2\n         (no newline at the end)\n"),
		Entry("a file's mode", files(`mode: 0644`), files(`mode: 0755`), "  ~ file /etc/a\n      -mode: 0644\n      +mode: 0755\n"),
		Entry("bytes", files(`contents: {source: "data:;base64,AAE="}`), files(`contents: {source: "data:;base64,AAI="}`),
			"  ~ file /etc/a\n      -contents: 2 bytes, sha256 b413f47d13ee\n      +contents: 2 bytes, sha256 fcf0a6c700dd\n"),
		Entry("the URL of contents", files(`contents: {source: "https://user:pass@example.com/a?token=1"}`), files(`contents: {source: "https://user:pass@example.com/b?token=1"}`),
			"  ~ file /etc/a\n      -contents: from https://example.com/a\n      +contents: from https://example.com/b\n"),
		Entry("a unit", unit(`enabled: false, contents: "[Install]\nAlso=b.service"`), unit(`enabled: true, contents: "[Install]\nAlso=b.service"`), "  ~ unit a.service\n         [Install]\n         Also=b.service\n         (no newline at the end)\n      -enabled: false\n      +enabled: true\n"),
		Entry("a drop-in", "{}", unit(`dropins: [{name: b.conf, contents: "[Unit]\n"}]`),
			"  + drop-in b.conf of unit a.service\n      +contents:\n      +  [Unit]\n"),
		Entry("a unit with a drop-in", "{}", unit(`contents: "[Service]", dropins: [{name: b.conf, contents: "[Unit]\n"}]`), "  + unit a.service\n"),
		Entry("a user's keys", user(`sshAuthorizedKeys: [ssh-rsa A]`), user(`sshAuthorizedKeys: [ssh-rsa A, ssh-rsa B]`),
			"  ~ user core\n       sshAuthorizedKeys:\n         ssh-rsa A\n      +  ssh-rsa B\n"),
		Entry("FIPS mode", "{}", "{fips: true}", "  ~ fips\n      -false\n      +true\n"),
		Entry("the operating system image", "{}", "{osImageURL: quay.io/os}", "  + osImageURL\n      +quay.io/os\n"),
		Entry("a removed operating system image", "{osImageURL: quay.io/os}", "{fips: false}", "  - osImageURL\n      -quay.io/os\n"),
		Entry("the extensions image", "{baseOSExtensionsContainerImage: quay.io/ext:1}", "{baseOSExtensionsContainerImage: quay.io/ext:2}",
			"  ~ baseOSExtensionsContainerImage\n      -quay.io/ext:1\n      +quay.io/ext:2\n"),
		Entry("only the notation", files(`contents: {source: "data:,a"}`), files(`contents: {source: "data:;base64,YQ=="}`), "  no change: only the notation or the name differs\n"),
	)

	DescribeTable("shows no secret",
		func(from, to string, secrets ...string) {
			out := changing(from, to)
			Expect(out).To(ContainSubstring("not shown"))
			for _, secret := range secrets {
				Expect(out).NotTo(ContainSubstring(secret))
			}
		},
		Entry("a file that is not world-readable", files(`mode: 0600, contents: {source: "data:,swordfish"}`), files(`mode: 0600, contents: {source: "data:,password1"}`), "swordfish", "password1", "sha256"),
		Entry("a file that becomes world-readable", files(`mode: 0640, contents: {source: "data:,swordfish"}`), files(`mode: 0644, contents: {source: "data:,public"}`), "swordfish"),
		Entry("a password", user(`passwordHash: $6$old`), user(`passwordHash: $6$new`), "$6$"),
		Entry("a disk's key", ignition(`storage: {luks: [{name: data, device: /dev/sda, keyFile: {source: "data:,old"}}]}`),
			ignition(`storage: {luks: [{name: data, device: /dev/sda, keyFile: {source: "data:,new"}}]}`), "data:,"),
	)

	DescribeTable("reports whether a host must reboot",
		func(from, to, answer string) {
			Expect(changing(from, to)).To(ContainSubstring("  reboot:   " + answer + "\n"))
		},
		Entry("kernel arguments", "{}", "{kernelArguments: [a]}", "yes: kernelArguments"),
		Entry("everything that always requires a reboot", "{}", "{kernelArguments: [a], extensions: [b], kernelType: realtime, osImageURL: c}",
			"yes: kernelArguments, extensions, kernelType, osImageURL"),
		Entry("a file without a policy", "{}", files("mode: 0644"), "yes: file /etc/a"),
		Entry("a unit without a policy", "{}", unit("enabled: true"), "yes: unit a.service"),
		Entry("a file with a default policy", "{}", ignition("storage: {files: [{path: /etc/crio/policies/a, mode: 0644}]}"), "no: Reload crio.service"),
		Entry("many files", "{}", ignition("storage: {files: [{path: /a}, {path: /b}, {path: /c}, {path: /d}, {path: /e}, {path: /f}, {path: /g}]}"),
			"yes: file /a, file /b, file /c, file /d, file /e and 2 more"),
		Entry("the extensions image", "{}", "{baseOSExtensionsContainerImage: a}", "no: nothing changes on the host"),
		Entry("the extensions image and extensions", "{}", "{baseOSExtensionsContainerImage: a, extensions: [b]}", "yes: extensions"),
		Entry("keys", user("sshAuthorizedKeys: [a]"), user("sshAuthorizedKeys: [b]"), "no: None"),
		Entry("keys and a file", user("sshAuthorizedKeys: [a]"), files("mode: 0644"), "yes: file /etc/a"),
		Entry("overwrite", files("mode: 0644, overwrite: false"), files("mode: 0644"), "no: nothing changes on the host"),
		Entry("another notation, as in OpenShift", files(`contents: {source: "data:,a"}`), files(`contents: {source: "data:;base64,YQ=="}`), "yes: file /etc/a"),
		Entry("what no running host can do", "{}", "{fips: true}",
			"is not enough: a running host can't apply the config\n    fips: a host applies it only when it is installed: replace the Machine, or undo the change"),
	)

	It("uses the disruption policy in the files, and that of worker", func() {
		withPolicy := func(pool, policy string) string {
			return strings.Replace(pool, "spec:\n", "spec:\n  updates: {disruptionPolicy: "+policy+"}\n", 1)
		}
		r := runDiff(clitest.NewFakeConnection([]string{withPolicy(worker, "{files: [{path: /etc, actions: [{type: DaemonReload}]}]}"), infra}), "-f", clitest.WriteFile("new.yaml",
			withPolicy(infra, "{files: [{path: /etc/motd, actions: [{type: Restart, unit: a.service}]}], sshKeys: {actions: [{type: Drain}]}}"),
			clitest.Config("51-infra", "infra", clitest.Motd("x")), clitest.Config("52-infra", "infra", files("mode: 0644"))))
		Expect(r.Out).To(And(ContainSubstring("reboot:   no: DaemonReload, Restart a.service\n"),
			ContainSubstring("  + updates.disruptionPolicy /etc/motd: Restart a.service\n      applies to every later change of the config\n"),
			ContainSubstring("  + updates.disruptionPolicy SSH keys: Drain\n")))
	})

	Describe("of several namespaces and Clusters", func() {
		there := func(document string) string {
			return strings.Replace(document, "metadata:\n", "metadata:\n  namespace: there\n", 1)
		}
		all := append([]string{clitest.Pool("infra-2", "worker"), there(worker)}, infra)
		everywhere := []string{clitest.Config("10-a", "worker", clitest.Motd("x")), there(clitest.Config("10-a", "worker", clitest.Motd("x")))}
		// The live pools of the namespace edge: worker of infra-2 and infra of infra-1, which has no worker, but in the
		// files.
		second := strings.Replace(worker, "name: worker\n", "name: worker-1\n", 1)

		pools := func(args ...string) []string {
			GinkgoHelper()
			r := runDiff(clitest.NewFakeConnection(append(all, second)), append([]string{"-f", clitest.WriteFile("new.yaml", everywhere...)}, args...)...)
			Expect(r.ErrOut).To(BeEmpty())
			var shown []string
			for line := range strings.Lines(r.Out) {
				if name, isPool := strings.CutPrefix(line, "MachineConfigPool "); isPool {
					shown = append(shown, strings.TrimSpace(name))
				}
			}
			return shown
		}

		It("shows all pools that the files change", func() {
			Expect(pools()).To(Equal([]string{"edge/infra (Cluster infra-1)", "edge/worker-1 (Cluster infra-1)", "edge/worker (Cluster infra-2)", "there/worker (Cluster infra-1)"}))
		})
		It("shows one Cluster with --cluster", func() {
			Expect(pools("--cluster", "infra-2")).To(Equal([]string{"edge/worker (Cluster infra-2)"}))
			Expect(pools("--cluster", "there/infra-1")).To(Equal([]string{"there/worker (Cluster infra-1)"}))
		})
		It("refuses a Cluster without pools", func() {
			clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", live...), "--cluster", "nowhere"), 2, `--cluster nowhere: neither the cluster nor the files have a pool of this Cluster`)
		})
		It("refuses objects of another namespace than --namespace", func() {
			clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-n", "edge", "-f", clitest.WriteFile("new.yaml", everywhere...)), 2, `MachineConfig "10-a" is of the namespace there, and --namespace is edge`)
		})
		It("uses --namespace for objects without a namespace", func() {
			Expect(runDiff(clitest.NewFakeConnection(live), "-n", "elsewhere", "-f", clitest.WriteFile("new.yaml", live...)).Out).To(ContainSubstring("MachineConfigPool elsewhere/worker"))
		})
	})

	It("compares with the last rendered config when a pool can't be rendered", func() {
		last, err := pool.NameFor("worker", poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}})
		Expect(err).NotTo(HaveOccurred())
		broken := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: "edge"}}
		broken.Spec.ClusterName, broken.Spec.PoolRole = "infra-1", "worker"
		broken.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}}
		broken.Status.Configuration = poolv1.PoolConfiguration{Name: last}
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: last, Namespace: "edge"}, Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}
		to := clitest.NewFakeConnection([]string{clitest.Config("50-a", "worker", `{config: {ignition: {version: 9.9.9}}}`)}, broken, rendered)
		r := runDiff(to, "-f", clitest.WriteFile("new.yaml", clitest.Config("50-a", "worker", "{kernelArguments: [quiet, nosmt]}")))
		Expect(r.ErrOut).To(HavePrefix(`note: MachineConfigPool "worker" can't be rendered now (MachineConfig "50-a": spec.config: `))
		Expect(r.ErrOut).To(HaveSuffix("the comparison is with " + last + "\n"))
		Expect(r.Out).To(And(ContainSubstring("config:   "+last+" -> "), ContainSubstring("+nosmt"), Not(ContainSubstring("+quiet"))))
		Expect(r.Code).To(Equal(1))
	})

	DescribeTable("exits with 2 on an error",
		func(why string, to func() input.Connection, args ...string) {
			clitest.ExpectError(runDiff(to(), args...), 2, why)
		},
		Entry("an unknown flag", "unknown flag", func() input.Connection { return clitest.NewFakeConnection(live) }, "--unknown"),
		Entry("no file", "set --filename or --node\n", func() input.Connection { return clitest.NewFakeConnection(live) }),
		Entry("a file that does not exist", "nowhere.yaml: no such file", func() input.Connection { return clitest.NewFakeConnection(live) }, "-f", "nowhere.yaml"),
		Entry("no kubeconfig", "no configuration", func() input.Connection { return &clitest.FakeConnection{Failure: errors.New("no configuration")} }, "-f", "/dev/null"),
		Entry("a kubeconfig that does not exist", "nowhere.kubeconfig", input.NewConnection, "-f", "/dev/null", "--kubeconfig", "nowhere.kubeconfig"),
	)

	It("exits with 2 when a pool could no longer be rendered", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Config("60-devel", "worker", `{kernelType: 64k-pages, extensions: [kernel-devel]}`)))
		clitest.ExpectError(r, 2, `the pools infra, worker of Cluster edge/infra-1: MachineConfig "60-devel": spec.extensions`)
		r = runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml",
			clitest.Config("60-files", "worker", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /opt/b/1}, {path: /opt/b/2}]}}}`),
			clitest.Config("61-link", "worker", `{config: {ignition: {version: 3.2.0}, storage: {links: [{path: /opt/b, target: /opt/c}]}}}`)))
		Expect(r.ErrOut).To(HaveSuffix("\nso these can't be rendered: the pools infra, worker of Cluster edge/infra-1\n"))
		Expect(r.ErrOut).To(MatchRegexp(`(?s)^error: \S*new.yaml: document 1: line \d+: MachineConfig "60-files": spec.config.storage.files\[0\]: together with ` +
			`spec.config.storage.links\[0\] of MachineConfig "61-link" \(\S*new.yaml: document 2: line \d+\): /opt/b/1: [^\n]*\n\S*new.yaml: document 1: line \d+: .*files\[1\]`))
	})

	It("compares the other pools while one can't be rendered, whose fault is in the cluster", func() {
		conflict := []string{clitest.Config("61-file", "infra", ignition("storage: {files: [{path: /etc/x}]}")), clitest.Config("62-below", "infra", ignition("storage: {files: [{path: /etc/x/y}]}"))}
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra-1"}}
		r := runDiff(clitest.NewFakeConnection(append(conflict, live...), cluster), "-f", clitest.WriteFile("okpool.yaml", clitest.Pool("infra-1", "gpu"), clitest.Config("52-gpu", "gpu", `{extensions: [gpu-driver]}`)))
		Expect(r.ErrOut).To(MatchRegexp(`^note: MachineConfigPool "infra" is not compared: it can't be rendered, also without the files, so correct this in the cluster: MachineConfig "6[12]-\w+": [^\n]*together with[^\n]*\n$`))
		Expect(r.Out).To(And(HavePrefix("MachineConfigPool edge/gpu "), ContainSubstring("+gpu-driver")))
		Expect(r.Code).To(Equal(1))

		By("comparing them also if the files are the fault")
		r = runDiff(clitest.NewFakeConnection(live, cluster), "-f", clitest.WriteFile("new.yaml", clitest.Pool("infra-1", "gpu"), clitest.Config("51-infra", "infra", `{kernelType: 64k-pages, extensions: [kernel-devel]}`)))
		Expect(r.Out).To(HavePrefix("MachineConfigPool edge/gpu "))
		Expect(r.ErrOut).To(ContainSubstring("error: the pools infra of Cluster edge/infra-1: "))
		Expect(r.Code).To(Equal(2))
	})

	It("exits with 2 when kubectl apply would refuse an object, and names its place", func() {
		r := runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Config("50-motd", "worker", `{config: {ignition: {version: 9.9.9}}}`)))
		clitest.ExpectError(r, 2, `new.yaml: document 1: line 6: MachineConfig "50-motd": spec.config.ignition.version: version "9.9.9" is not supported`)
		r = runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.Pool("infra-1", "gpu")+"  maxUnavailable: 0\n"))
		clitest.ExpectError(r, 2, `MachineConfigPool "gpu": spec.maxUnavailable: `, "at least 1")
	})

	It("exits with 2 when the webhook would refuse a pool together with those in the cluster, and names its place", func() {
		taking := strings.Replace(clitest.Pool("infra-1", "gpu"), "spec:\n", "spec:\n  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ''}}\n", 1)
		clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", taking)), 2,
			`new.yaml: document 1: line `, `MachineConfigPool "gpu": spec.nodeSelector: it also selects the Nodes of MachineConfigPool worker`)
		Expect(runDiff(clitest.NewFakeConnection(append(live, taking)), "-f", clitest.WriteFile("new.yaml", taking))).To(Equal(clitest.Result{}), "it is unchanged")
		moved := strings.Replace(infra, "poolRole: infra", "poolRole: gpu", 1)
		clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", moved)), 2, `MachineConfigPool "infra": spec.poolRole: `, "immutable")
	})

	It("notes a namespace without pools, and a pool whose Cluster does not exist", func() {
		to := clitest.NewFakeConnection(live)
		Expect(runDiff(to, "-n", "kube-system", "-f", clitest.WriteFile("new.yaml", clitest.Config("50-motd", "worker", clitest.Motd("x"))))).To(Equal(clitest.Result{
			ErrOut: "note: no MachineConfigPool is in namespace kube-system, so no host gets what the files have there: set --namespace\n"}))
		r := runDiff(to, "-f", clitest.WriteFile("new.yaml", strings.Replace(clitest.Pool("infra-9", "worker"), "name: worker", "name: far", 1)))
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool edge/far: spec.clusterName: no Cluster infra-9 is in namespace edge: correct the name, or create the Cluster\n"))
	})

	It("refuses OpenShift's objects, and names kubectl poolboot convert", func() {
		clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.OpenShiftInfra)), 2, `MachineConfigPool "infra" is an OpenShift object: convert it first`)
		clitest.ExpectError(runDiff(clitest.NewFakeConnection(live), "-f", clitest.WriteFile("new.yaml", clitest.OpenShiftInfra51)), 2, `MachineConfig "51-infra" is an OpenShift object: convert it first`)
	})

	It("exits with 2 when it is forbidden to read", func() {
		forbidden := interceptor.NewClient(clitest.NewFakeClientBuilder().Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("forbidden")
			},
		})
		clitest.ExpectError(runDiff(&clitest.FakeConnection{WithWatch: forbidden}, "-f", clitest.WriteFile("new.yaml", live...)), 2, "list MachineConfigPools of namespace edge: forbidden")
	})
})
