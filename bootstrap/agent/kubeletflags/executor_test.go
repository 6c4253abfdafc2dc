package kubeletflags_test

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubeletflags"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func TestKubeletFlags(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The kubelet's flags on a host that joined with kubeadm")
}

// joinConfiguration is as Poolboot writes it.
func joinConfiguration(labels, providerID, taints string) string {
	return `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  file:
    kubeConfigPath: /etc/poolboot/discovery.conf
nodeRegistration:
  name: infra-x7k2p
  kubeletExtraArgs:
  - name: config-dir
    value: /etc/kubernetes/kubelet.conf.d
  - name: node-labels
    value: ` + labels + `
  - name: provider-id
    value: ` + providerID + `
  taints: ` + taints + `
`
}

// What kubeadm v1.36 wrote for these configurations, with --dry-run.
var (
	//go:embed testdata/infra.env
	infraFlags string
	//go:embed testdata/worker.env
	workerFlags string
)

const infraTaints = `[{key: infra, value: reserved, effect: NoSchedule}, {key: slow, effect: NoExecute}]`

var (
	infra  = joinConfiguration("pool=infra", "metal3://a", infraTaints)
	worker = joinConfiguration("pool=worker,zone=b", "metal3://a", "[]")
)

func entry(contents string) *hosttree.Entry {
	return &hosttree.Entry{Type: hosttree.File, Contents: []byte(contents)}
}

func operationsOf(before, after *hosttree.Entry) []update.Operation {
	return []update.Operation{
		{Kind: update.ChangePath, Name: "/etc/motd", After: update.State{Path: entry("not YAML: {")}},
		{Kind: update.ChangePath, Name: ignition.KubeadmJoinPath, Before: update.State{Path: before}, After: update.State{Path: after}},
	}
}

var _ = Describe("The kubelet's flags on a host that joined with kubeadm", func() {
	ctx := context.Background()
	var executor *kubeletflags.Executor
	var name string

	BeforeEach(func() {
		executor = &kubeletflags.Executor{Root: GinkgoT().TempDir()}
		name = filepath.Join(executor.Root, ignition.KubeadmFlagsPath)
		Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
	})
	write := func(contents string) {
		GinkgoHelper()
		Expect(os.WriteFile(name, []byte(contents), 0o640)).To(Succeed())
	}
	read := func() string {
		GinkgoHelper()
		contents, err := os.ReadFile(name)
		Expect(err).NotTo(HaveOccurred())
		return string(contents)
	}

	It("are those that kubeadm writes for the other configuration, and are undone", func() {
		write(infraFlags)
		operations := operationsOf(entry(infra), entry(worker))
		for range 2 {
			Expect(applyAll(executor, ctx, operations)).To(Succeed())
			Expect(read()).To(Equal(workerFlags))
		}
		Expect(os.Stat(name)).To(HaveField("Mode()", os.FileMode(0o640)))
		for range 2 {
			Expect(applyAll(executor, ctx, update.Undo(operations))).To(Succeed())
			Expect(read()).To(Equal(infraFlags))
		}
	})

	It("are those that kubeadm wrote, if the configuration is the one that the host joined with", func() {
		for configuration, document := range map[string]string{infra: infraFlags, worker: workerFlags} {
			flags, err := kubeletflags.FlagsOf([]byte(configuration))
			Expect(err).NotTo(HaveOccurred())
			Expect(kubeletflags.Rewrite([]byte(document), flags, flags)).To(BeEquivalentTo(document))
		}
	})

	It("follow a configuration whose contents are not decoded yet", func() {
		write(infraFlags)
		source := dataurl.EncodeBytes([]byte(worker))
		after := &hosttree.Entry{Type: hosttree.File, Sources: []types.Resource{{Source: &source}}}
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), after))).To(Succeed())
		Expect(read()).To(Equal(workerFlags))
		after.Sources[0].Source = ptr.To("https://example.com/x")
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), after))).NotTo(Succeed())
	})

	It("of others stay, with their order, comments, and spelling", func() {
		write("# by hand\nA=b\nKUBELET_KUBEADM_ARGS=\"--v=2 --node-labels old=1  --eviction-hard=memory.available<\\\"5%\\\" --provider-id=x\" \n# end")
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), entry(worker)))).To(Succeed())
		Expect(read()).To(Equal("# by hand\nA=b\nKUBELET_KUBEADM_ARGS=\"--v=2 --config-dir=/etc/kubernetes/kubelet.conf.d --node-labels=pool=worker,zone=b --provider-id=metal3://a --eviction-hard=memory.available<\\\"5%\\\"\" \n# end"))
	})

	It("are not written if nothing changes", func() {
		write(infraFlags)
		before, err := os.Stat(name)
		Expect(err).NotTo(HaveOccurred())
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), entry(infra)))).To(Succeed())
		after, err := os.Stat(name)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.SameFile(before, after)).To(BeTrue())
	})

	It("stay if the host did not join with the configuration, or leaves it", func() {
		write(infraFlags)
		Expect(applyAll(executor, ctx, operationsOf(nil, entry(worker)))).To(Succeed())
		Expect(applyAll(executor, ctx, operationsOf(entry(worker), nil))).To(Succeed())
		Expect(read()).To(Equal(infraFlags))
	})

	DescribeTable("are not changed in a file that kubeadm did not write", func(document, message string) {
		write(document)
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), entry(worker)))).To(MatchError(ContainSubstring(message)))
		Expect(read()).To(Equal(document))
	},
		Entry("without the variable", "A=b\n", "it does not set KUBELET_KUBEADM_ARGS"),
		Entry("with the variable twice", infraFlags+infraFlags, "it sets KUBELET_KUBEADM_ARGS twice"),
		Entry("in several lines", "KUBELET_KUBEADM_ARGS=\"--v=2 \\\n--x=3\"\n", "it has a form that kubeadm does not write"),
		Entry("with other quotes", "KUBELET_KUBEADM_ARGS='--v=2'\n", "it has a form that kubeadm does not write"),
		Entry("with an open quote", "KUBELET_KUBEADM_ARGS=\"\n", "it has a form that kubeadm does not write"),
	)

	It("are not changed if the file is missing or its directory can't be written", func() {
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), entry(worker)))).To(MatchError(ContainSubstring(ignition.KubeadmFlagsPath + " does not exist")))
		Expect(os.Mkdir(name, 0o755)).To(Succeed())
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), entry(worker)))).NotTo(Succeed())
	})

	DescribeTable("never get what an environment file can't pass", func(configuration, message string) {
		write(infraFlags)
		Expect(applyAll(executor, ctx, operationsOf(entry(infra), entry(configuration)))).To(MatchError(ContainSubstring(message)))
		Expect(read()).To(Equal(infraFlags))
	},
		Entry("a quote", joinConfiguration(`'a="b"'`, "x", "[]"), "which has a character that an environment file can't pass"),
		Entry("another flag", joinConfiguration(`"a=b --anonymous-auth=true"`, "x", "[]"), "which has a character that an environment file can't pass"),
		Entry("a variable", joinConfiguration("$HOME", "x", "[]"), "which has a character that an environment file can't pass"),
		Entry("another line", joinConfiguration(`"a\nB=c"`, "x", "[]"), "which has a character that an environment file can't pass"),
		Entry("a flag in a name", strings.Replace(worker, "name: config-dir", "name: a=b", 1), "which has a character that an environment file can't pass"),
		Entry("a flag twice", strings.Replace(worker, "name: config-dir", "name: node-labels", 1), "has the flag --node-labels twice"),
		Entry("no YAML", "{", "/etc/kubernetes/poolboot-join.yaml: "),
	)
})

func FuzzRewrite(f *testing.F) {
	f.Add(infraFlags, "node-labels", "a=b", "provider-id", "x")
	f.Add("KUBELET_KUBEADM_ARGS=--a b --c\n", "c", "", "a", "1")
	f.Add("KUBELET_KUBEADM_ARGS=\"\"", "a", "", "b", "")
	f.Fuzz(func(t *testing.T, document, oldName, oldValue, newName, newValue string) {
		parse := func(name, value string) []kubeletflags.Flag {
			flags, err := kubeletflags.FlagsOf([]byte(`{"nodeRegistration":{"kubeletExtraArgs":[{"name":"` + name + `","value":"` + value + `"}]}}`))
			if err != nil {
				t.Skip()
			}
			return flags
		}
		before, after := parse(oldName, oldValue), parse(newName, newValue)
		got, err := kubeletflags.Rewrite([]byte(document), before, after)
		if err != nil {
			return
		}
		again, err := kubeletflags.Rewrite(got, before, after)
		if err != nil || string(again) != string(got) {
			t.Errorf("%q: repeated, %q becomes %q: %v", document, got, again, err)
		}
		if strings.Count(string(got), "\n") != strings.Count(document, "\n") {
			t.Errorf("%q becomes %q, with other lines", document, got)
		}
		back, err := kubeletflags.Rewrite(got, after, before)
		if err != nil {
			t.Fatalf("%q can't be undone: %v", got, err)
		}
		if forward, err := kubeletflags.Rewrite(back, before, after); err != nil || string(forward) != string(got) {
			t.Errorf("%q, undone and done again, is %q: %v", got, forward, err)
		}
	})
}

// applyAll carries out operations in their order, also after one that failed.
func applyAll(executor interface {
	Apply(ctx context.Context, operation update.Operation) error
}, ctx context.Context, operations []update.Operation) (err error) {
	for _, operation := range operations {
		err = errors.Join(err, executor.Apply(ctx, operation))
	}
	return err
}
