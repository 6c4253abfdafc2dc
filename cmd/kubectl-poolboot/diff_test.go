package main

import (
	"bytes"
	"context"
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// stored is a connection to objects that no API server has. The namespace of the kubeconfig is edge.
type stored struct {
	client.WithWatch
	namespace string
	failure   error

	// own reads the objects of every workload cluster; without it, nobody may.
	own client.Reader
}

func (s *stored) workload(context.Context, client.Reader, client.ObjectKey) (client.Reader, error) {
	if s.own == nil {
		return nil, errors.New("secrets is forbidden")
	}
	return s.own, nil
}

func (s *stored) offer(flags *pflag.FlagSet) {
	flags.StringVarP(&s.namespace, "namespace", "n", "", "")
}

func (s *stored) open() (client.WithWatch, string, bool, error) {
	if s.namespace != "" {
		return s, s.namespace, true, s.failure
	}
	return s, "edge", false, s.failure
}

// storing returns a connection to the objects in YAML, which are in the namespace edge if they name none, and to
// others.
func storing(documents []string, others ...client.Object) *stored {
	GinkgoHelper()
	found, err := (&reader{}).read(file("live.yaml", documents...))
	Expect(err).NotTo(HaveOccurred())
	Expect(found.settle("edge", false)).To(Succeed())
	builder := fake.NewClientBuilder().WithScheme(liveScheme()).WithObjects(others...)
	for i := range found.pools {
		builder = builder.WithObjects(&found.pools[i])
	}
	for i := range found.configs {
		builder = builder.WithObjects(&found.configs[i])
	}
	return &stored{WithWatch: builder.Build()}
}

// diffing runs diff against a connection.
func diffing(to connection, args ...string) result {
	var out, errOut bytes.Buffer
	cmd := newDiff(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, to)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	code := execute(cmd, &errOut, args)
	return result{code: code, out: out.String(), errOut: errOut.String()}
}

// machineIn is the PoolbootConfig of a Machine of the Cluster infra-1 that is recorded in a pool.
func machineIn(role, name, node string) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{
		Name: name + "-config", Namespace: "edge", Labels: map[string]string{clusterv1.ClusterNameLabel: "infra-1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: "1"}},
	}}
	config.Status.PoolRole = role
	if node != "" {
		config.Status.NodeRef = bootstrapv1.NodeReference{Name: node}
	}
	return config
}

var _ = Describe("diff", func() {
	worker, infra := ownPool("infra-1", "worker"), ownPool("infra-1", "infra")
	live := []string{worker, infra, ownConfig("50-motd", "worker", motd("worker")), ownConfig("51-infra", "infra", `{kernelArguments: [quiet]}`)}

	// changing returns what diff prints of the pool infra when its MachineConfig 51-infra goes from one spec to
	// another.
	changing := func(from, to string) string {
		GinkgoHelper()
		r := diffing(storing([]string{worker, infra, ownConfig("51-infra", "infra", from)}), "-f", file("new.yaml", ownConfig("51-infra", "infra", to)))
		Expect(r.errOut).To(BeEmpty())
		Expect(r.code).To(Equal(1))
		return r.out
	}
	// ignition is the spec of a MachineConfig with something in its Ignition, in YAML's flow style.
	ignition := func(content string) string { return "{config: {ignition: {version: 3.2.0}, " + content + "}}" }
	files := func(entry string) string { return ignition("storage: {files: [{path: /etc/a, " + entry + "}]}") }
	unit := func(entry string) string { return ignition("systemd: {units: [{name: a.service, " + entry + "}]}") }
	user := func(entry string) string { return ignition("passwd: {users: [{name: core, " + entry + "}]}") }

	It("prints nothing and exits with 0 when the files change nothing", func() {
		Expect(diffing(storing(live), "-f", file("new.yaml", live...))).To(Equal(result{}))
		Expect(diffing(storing(live), "-f", file("new.yaml", ownConfig("99-other", "gpu", motd("gpu"))))).To(Equal(result{}), "no pool selects it")
	})

	It("exits with 1 and shows each pool, its machines and what changes", func() {
		to := storing(live, machineIn("infra", "infra-b", "host-7"), machineIn("infra", "infra-a", ""), machineIn("worker", "plain", "host-8"))
		r := diffing(to, "-f", file("new.yaml", ownConfig("51-infra", "infra", `{kernelArguments: [quiet, nosmt], kernelType: realtime}`)))
		Expect(r.errOut).To(BeEmpty())
		Expect(r.code).To(Equal(1))
		Expect(r.out).To(MatchRegexp(`^MachineConfigPool edge/infra \(Cluster infra-1\)
  config:   rendered-infra-[0-9a-f]{32} -> rendered-infra-[0-9a-f]{32}
  reboot:   yes: kernelArguments, kernelType
  machines: 2
    Machine infra-a
    Machine infra-b, Node host-7
  ~ kernelArguments
        @@ -1 \+1,2 @@
         quiet
        \+nosmt
  ~ kernelType
      default -> realtime
$`))
	})

	It("shows every pool that inherits a change, in order", func() {
		r := diffing(storing(live), "-f", file("new.yaml", ownConfig("50-motd", "worker", motd("hello"))))
		Expect(r.out).To(MatchRegexp(`(?s)^MachineConfigPool edge/infra .*-worker\n.*\+hello\n.*\n\nMachineConfigPool edge/worker .*\+hello\n`))
	})

	It("compares a new pool with worker, where its Nodes would be now", func() {
		r := diffing(storing(live), "-f", file("new.yaml", ownPool("infra-1", "gpu"), ownConfig("52-gpu", "gpu", `{extensions: [gpu-driver]}`)))
		Expect(r.code).To(Equal(1))
		Expect(r.out).To(MatchRegexp(`(?s)config:   new, compared with rendered-worker-\w+ -> rendered-gpu-.*  \+ extensions\n.*\+gpu-driver\n`))
		Expect(r.out).NotTo(ContainSubstring("motd"))
		Expect(diffing(storing(live), "-f", file("new.yaml", ownPool("infra-1", "gpu"))).out).To(And(
			ContainSubstring("reboot:   no: a host would be the same"), ContainSubstring("no change: only how it is written, or the name")))
	})

	It("shows all of the first pool of a Cluster", func() {
		r := diffing(storing(nil), "-f", file("new.yaml", live...))
		Expect(r.out).To(MatchRegexp(`(?s)config:   new, compared with nothing -> rendered-worker-.*\+ file /etc/motd\n`))
		Expect(r.errOut).To(BeEmpty())
	})

	It("says that a pool is paused", func() {
		paused := strings.Replace(infra, "spec:\n", "spec:\n  paused: true\n", 1)
		r := diffing(storing([]string{worker, paused}), "-f", file("new.yaml", ownConfig("51-infra", "infra", motd("x"))))
		Expect(r.out).To(ContainSubstring("paused:   yes"))
	})

	DescribeTable("shows what changes",
		func(from, to, shown string) { Expect(changing(from, to)).To(ContainSubstring("machines: 0\n" + shown)) },
		Entry("a file that comes", "{}", files(`mode: 0644, contents: {source: "data:,one%0Atwo%0A"}`),
			"  + file /etc/a\n      contents:\n        @@ -0,0 +1,2 @@\n        +one\n        +two\n      mode: 0644\n      overwrite: true\n"),
		Entry("a file that goes", files(`contents: {source: "data:,one%0A"}`), "{}", "  - file /etc/a\n"),
		Entry("lines of a file", files(`contents: {source: "data:,one%0Atwo"}`), files(`contents: {source: "data:,one%0A2"}`),
			"  ~ file /etc/a\n      contents:\n        @@ -1,2 +1,2 @@\n         one\n        -two\n        \\ No newline at end of file\n        +2\n        \\ No newline at end of file\n"),
		Entry("a file's mode", files(`mode: 0644`), files(`mode: 0755`), "  ~ file /etc/a\n      mode: 0644 -> 0755\n"),
		Entry("bytes", files(`contents: {source: "data:;base64,AAE="}`), files(`contents: {source: "data:;base64,AAI="}`),
			"  ~ file /etc/a\n      contents: 2 bytes, sha256 b413f47d13ee -> 2 bytes, sha256 fcf0a6c700dd\n"),
		Entry("where contents come from", files(`contents: {source: "https://user:pass@example.com/a?token=1"}`), files(`contents: {source: "https://user:pass@example.com/b?token=1"}`),
			"  ~ file /etc/a\n      contents: from https://example.com/a -> from https://example.com/b\n"),
		Entry("a unit", unit(`enabled: false, contents: "[Unit]"`), unit(`enabled: true, contents: "[Unit]"`), "  ~ unit a.service\n      enabled: false -> true\n"),
		Entry("a drop-in", "{}", unit(`dropins: [{name: b.conf, contents: "[Unit]\n"}]`),
			"  + unit a.service\n  + drop-in a.service.d/b.conf\n      contents:\n        @@ -0,0 +1 @@\n        +[Unit]\n"),
		Entry("a user's keys", user(`sshAuthorizedKeys: [ssh-rsa A]`), user(`sshAuthorizedKeys: [ssh-rsa A, ssh-rsa B]`),
			"  ~ user core\n      sshAuthorizedKeys:\n        @@ -1 +1,2 @@\n         ssh-rsa A\n        +ssh-rsa B\n"),
		Entry("FIPS mode", "{}", "{fips: true}", "  ~ fips\n      false -> true\n"),
		Entry("the operating system", "{}", "{osImageURL: quay.io/os}", "  + osImageURL\n      quay.io/os\n"),
		Entry("the operating system that goes", "{osImageURL: quay.io/os}", "{}", "  - osImageURL\n      quay.io/os -> none\n"),
		Entry("where extensions come from", "{baseOSExtensionsContainerImage: quay.io/ext:1}", "{baseOSExtensionsContainerImage: quay.io/ext:2}",
			"  ~ baseOSExtensionsContainerImage\n      quay.io/ext:1 -> quay.io/ext:2\n"),
		Entry("how it is written", files(`contents: {source: "data:,a"}`), files(`contents: {source: "data:;base64,YQ=="}`), "  no change: only how it is written, or the name\n"),
	)

	DescribeTable("shows no secret",
		func(from, to string, secrets ...string) {
			out := changing(from, to)
			Expect(out).To(ContainSubstring("not shown"))
			for _, secret := range secrets {
				Expect(out).NotTo(ContainSubstring(secret))
			}
		},
		Entry("a file that not everybody may read", files(`mode: 0600, contents: {source: "data:,swordfish"}`), files(`mode: 0600, contents: {source: "data:,password1"}`), "swordfish", "password1", "sha256"),
		Entry("a file that everybody may read from now on", files(`mode: 0640, contents: {source: "data:,swordfish"}`), files(`mode: 0644, contents: {source: "data:,public"}`), "swordfish", "+public"),
		Entry("a password", user(`passwordHash: $6$old`), user(`passwordHash: $6$new`), "$6$"),
		Entry("a disk's key", ignition(`storage: {luks: [{name: data, device: /dev/sda, keyFile: {source: "data:,old"}}]}`),
			ignition(`storage: {luks: [{name: data, device: /dev/sda, keyFile: {source: "data:,new"}}]}`), "data:,"),
	)

	DescribeTable("says whether a host must reboot",
		func(from, to, answer string) {
			Expect(changing(from, to)).To(ContainSubstring("  reboot:   " + answer + "\n"))
		},
		Entry("kernel arguments", "{}", "{kernelArguments: [a]}", "yes: kernelArguments"),
		Entry("all that always does", "{}", "{kernelArguments: [a], extensions: [b], kernelType: realtime, fips: true, osImageURL: c}",
			"yes: kernelArguments, extensions, kernelType, fips, osImageURL"),
		Entry("a file", "{}", files("mode: 0644"), "yes: files and units take one by default, as in OpenShift"),
		Entry("a unit", "{}", unit("enabled: true"), "yes: files and units take one by default, as in OpenShift"),
		Entry("where extensions come from", "{}", "{baseOSExtensionsContainerImage: a}", "no: the image of extensions is used when some are installed"),
		Entry("where extensions come from, and extensions", "{}", "{baseOSExtensionsContainerImage: a, extensions: [b]}", "yes: extensions"),
		Entry("where extensions come from, and a file", files("mode: 0600"), `{baseOSExtensionsContainerImage: a}`, "yes: files and units take one by default, as in OpenShift"),
		Entry("keys", user("sshAuthorizedKeys: [a]"), user("sshAuthorizedKeys: [b]"), "no: only users change"),
		Entry("keys and a file", user("sshAuthorizedKeys: [a]"), files("mode: 0644"), "yes: files and units take one by default, as in OpenShift"),
	)

	Describe("of several namespaces and Clusters", func() {
		there := func(document string) string {
			return strings.Replace(document, "metadata:\n", "metadata:\n  namespace: there\n", 1)
		}
		all := append([]string{ownPool("infra-2", "worker"), there(worker)}, infra)
		everywhere := []string{ownConfig("10-a", "worker", motd("x")), there(ownConfig("10-a", "worker", motd("x")))}
		// The live pools of the namespace edge: worker of infra-2 and infra of infra-1, which has no worker, but in the
		// files.
		second := strings.Replace(worker, "name: worker\n", "name: worker-1\n", 1)

		pools := func(args ...string) []string {
			GinkgoHelper()
			r := diffing(storing(append(all, second)), append([]string{"-f", file("new.yaml", everywhere...)}, args...)...)
			Expect(r.errOut).To(BeEmpty())
			var shown []string
			for line := range strings.Lines(r.out) {
				if name, isPool := strings.CutPrefix(line, "MachineConfigPool "); isPool {
					shown = append(shown, strings.TrimSpace(name))
				}
			}
			return shown
		}

		It("shows all that the files concern", func() {
			Expect(pools()).To(Equal([]string{"edge/infra (Cluster infra-1)", "edge/worker-1 (Cluster infra-1)", "edge/worker (Cluster infra-2)", "there/worker (Cluster infra-1)"}))
		})
		It("shows one Cluster with --cluster", func() {
			Expect(pools("--cluster", "infra-2")).To(Equal([]string{"edge/worker (Cluster infra-2)"}))
			Expect(pools("--cluster", "there/infra-1")).To(Equal([]string{"there/worker (Cluster infra-1)"}))
		})
		It("refuses a Cluster without pools", func() {
			refused(diffing(storing(live), "-f", file("new.yaml", live...), "--cluster", "nowhere"), 2, `no pool is of the Cluster "nowhere"`)
		})
		It("refuses objects of another namespace than --namespace", func() {
			refused(diffing(storing(live), "-n", "edge", "-f", file("new.yaml", everywhere...)), 2, `MachineConfig "10-a" is of the namespace there, and --namespace is edge`)
		})
		It("takes objects without a namespace to be of --namespace", func() {
			Expect(diffing(storing(live), "-n", "elsewhere", "-f", file("new.yaml", live...)).out).To(ContainSubstring("MachineConfigPool elsewhere/worker"))
		})
	})

	It("compares with what a pool rendered last when it can't be rendered now", func() {
		last, err := pool.NameFor("worker", poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}})
		Expect(err).NotTo(HaveOccurred())
		broken := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: "edge"}}
		broken.Spec.ClusterName, broken.Spec.PoolRole = "infra-1", "worker"
		broken.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}}
		broken.Status.Configuration = poolv1.PoolConfiguration{Name: last}
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: last, Namespace: "edge"}, Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}
		to := storing([]string{ownConfig("50-a", "worker", `{config: {ignition: {version: 9.9.9}}}`)}, broken, rendered)
		r := diffing(to, "-f", file("new.yaml", ownConfig("50-a", "worker", "{kernelArguments: [quiet, nosmt]}")))
		Expect(r.errOut).To(HavePrefix(`note: MachineConfigPool "worker" can't be rendered as it is now (MachineConfig "50-a": spec.config: `))
		Expect(r.out).To(And(ContainSubstring("config:   "+last+" -> "), ContainSubstring("+nosmt"), Not(ContainSubstring("+quiet"))))
		Expect(r.code).To(Equal(1))
	})

	DescribeTable("exits with 2 when it can't say",
		func(why string, to func() connection, args ...string) { refused(diffing(to(), args...), 2, why) },
		Entry("an unknown flag", "unknown flag", func() connection { return storing(live) }, "--unknown"),
		Entry("no file", `"filename" not set`, func() connection { return storing(live) }),
		Entry("a file that is not there", "nowhere.yaml: no such file", func() connection { return storing(live) }, "-f", "nowhere.yaml"),
		Entry("no kubeconfig", "no configuration", func() connection { return &stored{failure: errors.New("no configuration")} }, "-f", "/dev/null"),
		Entry("a kubeconfig that is not there", "nowhere.kubeconfig", byKubeconfig, "-f", "/dev/null", "--kubeconfig", "nowhere.kubeconfig"),
	)

	It("exits with 2 when a pool could not be rendered any more", func() {
		r := diffing(storing(live), "-f", file("new.yaml", ownConfig("50-motd", "worker", `{config: {ignition: {version: 9.9.9}}}`)))
		refused(r, 2, `the pools of Cluster edge/infra-1: MachineConfig "50-motd": spec.config: ignition.version`)
	})

	It("asks for OpenShift's objects to be converted first", func() {
		refused(diffing(storing(live), "-f", file("new.yaml", openshiftInfra)), 2, `MachineConfigPool "infra" is OpenShift's: convert it first`)
		refused(diffing(storing(live), "-f", file("new.yaml", infra51)), 2, `MachineConfig "51-infra" is OpenShift's: convert it first`)
	})

	It("exits with 2 when it may not read", func() {
		forbidden := interceptor.NewClient(fake.NewClientBuilder().WithScheme(liveScheme()).Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("forbidden")
			},
		})
		refused(diffing(&stored{WithWatch: forbidden}, "-f", file("new.yaml", live...)), 2, "reading what is live in the namespace edge: forbidden")
	})
})
