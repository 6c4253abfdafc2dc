package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var (
	consoleBlock = regexp.MustCompile("(?ms)^```console[^\n]*\n(.*?)^```$")
	// prompt is before a command in such a block.
	prompt = regexp.MustCompile(`(?m)^[\w-]*\$ `)
)

// expectToFit expects each line of an output to have at most 120 columns.
func expectToFit(command, output string) {
	GinkgoHelper()
	for line := range strings.Lines(output) {
		Expect(utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))).To(BeNumerically("<=", 120), "%s: %s", command, line)
	}
}

var _ = Describe("What the commands print fits in 120 columns", func() {
	const (
		longName   = "rack12-unit07.metal.dc3.example.com"
		ranConfig  = "rendered-infra-6db67f47c0d2428aec3e630c5a704bff"
		goodConfig = "rendered-infra-1761d9954d2dd6428aec3e630c5a704b"
	)
	// live is a cluster with a host whose update failed and one that waits for its pool, with long names.
	live := func() *clitest.FakeConnection {
		failed := clitest.PoolbootConfig("infra", "infra-x7k2m", longName)
		failed.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
		record.RevokeToken(failed)
		failed.Status.HostRef = bootstrapv1.HostReference{Namespace: "edge", Name: "rack12-unit07", UID: "0c4b1d3e-6a1f-4c55-9d0e-2f8a7b9c1e30"}
		failed.Status.Boot.ServedConfiguration.Name = ranConfig
		failed.Status.Update.Desired.Name, failed.Status.Update.DesiredRevision = goodConfig, strings.Repeat("1", 64)
		failed.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UpdateDegradedReason,
			Message: "the update of Node " + longName + " to " + goodConfig + " failed and was undone: the kubelet was not Ready within 10m: see journalctl -u kubelet.service on the host, and correct the MachineConfigs, or run kubectl poolboot rollout retry infra -n edge --host " + longName + " to try it again"}}
		waits := clitest.PoolbootConfig("", "infra-9pq4c", "")
		waits.Status.Conditions = []metav1.Condition{{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "PoolConflict",
			Message: "PoolDecided: the labels belong to the pools infra and storage, and a Node can be in one custom pool only: remove the labels of all but one"}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: longName, Annotations: map[string]string{poolv1.NodeConfigAnnotation: "edge/infra-x7k2m-config"},
			Labels: map[string]string{"node-role.kubernetes.io/infra": "", "example.com/tier": "gold"}}, Spec: corev1.NodeSpec{Unschedulable: true}}
		pool := clitest.Pool("infra-1", "infra") + "  node:\n    labels: {example.com/tier: infra}\n    taints: [{key: example.com/gpu, effect: NoExecute}]\n" +
			"    labelRules: [{key: example.com/hardware-class, valueExpression: 'host.hardware.memoryMebibytes >= 512 && host.hardware.cpu.count > 96 ? \"large\" : \"small\"'}]\n" +
			"status: {configuration: {name: " + goodConfig + "}}\n"
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2m", Namespace: "edge", Labels: map[string]string{"node-role.kubernetes.io/infra": ""}}}
		machine.Spec.ClusterName = "infra-1"
		machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{Kind: "PoolbootConfig", Name: "infra-x7k2m-config", APIGroup: bootstrapv1.GroupVersion.Group}
		host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "rack12-unit07", Namespace: "edge"}}
		host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{RAMMebibytes: 524288, CPU: bmov1alpha1.CPU{Count: 128}}
		rendered := strings.Replace(clitest.Config(goodConfig, "none", clitest.Motd("good")), "  labels: {", "  labels: {"+poolv1.RenderedForLabel+": infra, ", 1)
		to := clitest.NewFakeConnection([]string{pool, clitest.Pool("infra-1", "worker"), clitest.Config("99-infra", "infra", clitest.Motd("hello")), rendered},
			machine, failed, waits, host, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra-1"}})
		to.Own = clitest.NewFakeClientBuilder(node).Build()
		return to
	}

	DescribeTable("on a cluster",
		func(shown string, args ...string) {
			GinkgoT().Chdir(GinkgoT().TempDir())
			clitest.WriteFileIn(".", "change.yaml", clitest.Config("99-infra", "infra", clitest.Motd("changed")), strings.Replace(clitest.Pool("infra-1", "infra"), "spec:", "spec:\n  paused: true", 1))
			var out, errOut bytes.Buffer
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
			cli.Execute(newRoot(streams, func() input.Connection { return live() }), &errOut, args)
			Expect(out.String()).To(ContainSubstring(shown), errOut.String())
			expectToFit(strings.Join(args, " "), out.String()+errOut.String())
		},
		Entry("boots", "PoolDecided", "boots"),
		Entry("boots of all namespaces", "NAMESPACE", "boots", "-A"),
		Entry("diff", "reboot:", "diff", "-f", "change.yaml"),
		Entry("explain host", "hardware-class", "explain", "host", "rack12-unit07"),
		Entry("explain machine", "example.com/tier=infra", "explain", "machine", "infra-x7k2m"),
		Entry("explain node", "example.com/tier=infra", "explain", "node", longName),
		Entry("move-check", "to move", "move-check"),
		Entry("render --explain", "/etc/motd", "render", "--live", "--pool", "infra", "--explain"),
		Entry("rollout approve", "needs no approval", "rollout", "approve", "infra"),
		Entry("rollout except", "skipped", "rollout", "except", "infra", longName, "--skip", "--until", "1h", "--reason", "it waits for a part that comes with the next delivery to the site, which is late because of the snow"),
		Entry("rollout history", "infra@1761d995", "rollout", "history", "infra"),
		Entry("rollout pause", "is paused", "rollout", "pause", "infra", "--configuration", goodConfig),
		Entry("rollout plan", longName, "rollout", "plan", "infra"),
		Entry("rollout resume", "is not paused", "rollout", "resume", "infra"),
		Entry("rollout retry", "applies its configuration again", "rollout", "retry", "infra"),
		Entry("rollout undo", "hands out", "rollout", "undo", "infra", "--to", goodConfig),
		Entry("rollout status", "infra@6db67f47", "rollout", "status", "infra"),
		Entry("rollout status of all pools", "infra@1761d995", "rollout", "status", "-A"),
	)

	It("with long names of pools, files and MachineConfigs", func() {
		role := strings.Repeat("storage-", 7) + "nvme"
		config := func(name, contents string) string {
			return strings.NewReplacer("/etc/motd", "/etc/"+strings.Repeat("directory/", 4)+"kubelet.conf").Replace(clitest.Config(name+strings.Repeat("-long", 9), role, clitest.Motd(contents)))
		}
		GinkgoT().Chdir(GinkgoT().TempDir())
		clitest.WriteFileIn(".", "pool.yaml", clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", role), config("98", "a"), config("99", "b"))
		for _, args := range [][]string{{"render", "--explain"}, {"labels"}} {
			var out, errOut bytes.Buffer
			cli.Execute(newRoot(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut}, input.NewConnection), &errOut, append(args, "-f", "pool.yaml", "--pool", role))
			Expect(out.String()).NotTo(BeEmpty(), errOut.String())
			expectToFit(strings.Join(args, " "), out.String()+errOut.String())
		}
	})

	It("with the same columns for rows that are printed later, as of a watch", func() {
		var out bytes.Buffer
		table := &cli.Table{Out: &out, Header: []string{"HOST", "STATE", "MESSAGE"}, MinWidths: map[string]int{"STATE": 8}}
		for _, row := range [][]string{{"server-17", "Done", "a"}, {"a", "Draining", "b"}, {"b", "Done", strings.Repeat("long ", 40)}, {"c", "Done", "d"}} {
			Expect(table.Print(row)).To(Succeed())
		}
		for line := range strings.Lines(out.String()) {
			Expect(line).To(MatchRegexp(`^.{9}   .{8}   [Mablond]`))
		}
		expectToFit("a table", out.String())
	})

	It("with characters that are two columns wide", func() {
		var out bytes.Buffer
		table := &cli.Table{Out: &out, Header: []string{"FILE", "STATE"}}
		Expect(table.Print([]string{"/etc/機架", "Present"}, []string{"/etc/motd", "Absent"}, []string{"é", "Absent"})).To(Succeed())
		Expect(out.String()).To(Equal("FILE        STATE\n/etc/機架   Present\n/etc/motd   Absent\né           Absent\n"))
		Expect(cli.Paragraph("", strings.Repeat("機", 100))).To(Equal(strings.Repeat("機", 60) + "\n" + strings.Repeat("機", 40) + "\n"))
		message := &bytes.Buffer{}
		fmt.Fprintln(cli.Messages(message), "error:", strings.Repeat("機 ", 50))
		Expect(strings.Count(message.String(), "\n")).To(Equal(2))
	})

	It("unless it is wide", func() {
		for _, args := range [][]string{{"explain", "machine", "infra-x7k2m"}, {"boots"}, {"rollout", "status"}, {"rollout", "status", "infra"}} {
			var out, errOut bytes.Buffer
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
			cli.Execute(newRoot(streams, func() input.Connection { return live() }), &errOut, append(args, "-o", "wide"))
			Expect(out.String()).To(MatchRegexp(`(?m)^\S.{150}`), strings.Join(args, " "))
			Expect(out.String()).NotTo(MatchRegexp(`(?m)^ {20}`), strings.Join(args, " "))
		}
	})

	It("in the documentation", func() {
		pages, err := filepath.Glob(sourcetree.Path("docs", "*.md"))
		Expect(err).NotTo(HaveOccurred())
		outputs := 0
		for _, page := range pages {
			text, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
				for _, shown := range prompt.Split(block[1], -1) {
					if command, output, _ := strings.Cut(shown, "\n"); strings.Contains(command, "kubectl poolboot ") {
						expectToFit(filepath.Base(page)+": "+command, output)
						outputs++
					}
				}
			}
		}
		Expect(outputs).To(BeNumerically(">=", 40))
	})

	It("in the help of every command", func() {
		eachCommand(func(cmd *cobra.Command) {
			var out bytes.Buffer
			cmd.SetOut(&out)
			Expect(cmd.Help()).To(Succeed())
			expectToFit(cmd.CommandPath()+" --help", out.String())
		})
	})
})
