package boots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// terminal is a buffer that can be read and written concurrently.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// lines returns the text, with one space between columns.
func (s *terminal) lines() (lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.text.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// newBootConfig returns the PoolbootConfig of a boot of a Machine, created two hours ago.
func newBootConfig(namespace, machine string, change func(*bootstrapv1.PoolbootConfig)) *bootstrapv1.PoolbootConfig {
	c := clitest.PoolbootConfig("infra", machine, "")
	c.Namespace, c.CreationTimestamp = namespace, metav1.NewTime(time.Now().Add(-2*time.Hour).Truncate(time.Second))
	if change != nil {
		change(c)
	}
	return c
}

var _ = Describe("boots of hosts that were adopted", func() {
	DescribeTable("have the stage AsFound until they follow a pool, with what they wait for", func(reason, message string) {
		config := clitest.AdoptedConfig("edge-7", reason, message)
		r := clitest.RunOn(clitest.NewFakeConnection(nil, config), New, "boots", "-o", "wide")
		Expect(clitest.Rows(clitest.ExpectSuccess(r))[1]).To(MatchRegexp("^<none> edge-7 infra AsFound 60m 120m infra-1 edge-7 as-found \\S+ " + reason + " <none> update " + reason + ": " + message + "$"))
	},
		Entry("without an agent", bootstrapv1.NoAgentReason, "kubectl poolboot install-agent edge-7 -n edge prints the script"),
		Entry("with a preview", bootstrapv1.AdoptionPreviewReason, "Its pool changes nothing on it"),
	)

	It("say first what a person must correct", func() {
		config := clitest.AdoptedConfig("edge-7", bootstrapv1.NoAgentReason, "the host runs no agent")
		config.Status.Conditions[1] = metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.ControlPlaneNodeReason, Message: "Node edge-7 has the labels of a control plane"}
		config.Status.Conditions = append(config.Status.Conditions, metav1.Condition{Type: clusterv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.ControlPlaneNodeReason, Message: "NodeInPool: Node edge-7 has the labels of a control plane"})
		Expect(clitest.ExpectSuccess(clitest.RunOn(clitest.NewFakeConnection(nil, config), New, "boots", "-o", "wide"))).To(ContainSubstring("NodeInPool: Node edge-7 has the labels of a control plane"))
	})
})

var _ = Describe("boots", func() {
	ago := func(d time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(-d)} }
	var live client.WithWatch
	BeforeEach(func() {
		other := func(c *bootstrapv1.PoolbootConfig) { c.Labels[clusterv1.ClusterNameLabel] = "other" }
		live = clitest.NewFakeClientBuilder().WithStatusSubresource(&bootstrapv1.PoolbootConfig{}).WithObjects(
			newBootConfig("edge", "infra-b", func(c *bootstrapv1.PoolbootConfig) {
				c.Status.HostRef = bootstrapv1.HostReference{Name: "rack1-u12", Namespace: "edge", UID: "1"}
				c.Status.Boot.HostChosenTime = ago(20 * time.Minute)
				c.Status.Boot.ServedConfiguration.Name = "rendered-infra-1"
				clitest.RecordTwoAddresses(c)
				c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionUnknown, Reason: "WaitingForHost", Message: "it has not asked\x1b[31m"}}
			}),
			newBootConfig("edge", "infra-a", nil), newBootConfig("edge", "infra-o", other), newBootConfig("far", "infra-c", nil),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
		).WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			list.SetResourceVersion("1") // as an API server has one for every list
			return err
		}}).Build()
	})
	// running runs boots until it ends by itself or ctx does.
	running := func(ctx context.Context, to input.Connection, out *terminal, args ...string) int {
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}
		root := cli.NewRoot(streams, New(streams, to))
		root.SetContext(ctx)
		return cli.Execute(root, out, append([]string{"boots"}, args...))
	}
	table := func(ctx context.Context, args ...string) []string {
		GinkgoHelper()
		out := &terminal{}
		Expect(running(ctx, &clitest.FakeConnection{WithWatch: live}, out, args...)).To(BeZero())
		return out.lines()
	}

	It("prints a table in the order of the Machines", func(ctx SpecContext) {
		Expect(table(ctx)).To(Equal([]string{
			"MACHINE HOST POOL STAGE SINCE AGE MESSAGE",
			"infra-a <none> infra Pending 120m 120m <none>",
			`infra-b rack1-u12 infra Provisioning 20m 120m "it has not asked\x1b[31m"`,
			"infra-o <none> infra Pending 120m 120m <none>",
		}))
	})

	It("selects boots by the names of Machines, PoolbootConfigs, hosts or Nodes", func(ctx SpecContext) {
		Expect(table(ctx, "infra-a")).To(HaveExactElements(HavePrefix("MACHINE"), HavePrefix("infra-a")))
		Expect(table(ctx, "infra-o-config", "rack1-u12")).To(HaveExactElements(HavePrefix("MACHINE"), HavePrefix("infra-b"), HavePrefix("infra-o")))
		Expect(table(ctx, "-A", "infra-c")).To(HaveExactElements(HavePrefix("NAMESPACE"), HavePrefix("far infra-c")))
		out := &terminal{}
		Expect(running(ctx, &clitest.FakeConnection{WithWatch: live}, out, "infra-a", "infra-c")).To(Equal(1))
		Expect(out.lines()).To(ContainElements(HavePrefix("infra-a"), `error: no PoolbootConfig in namespace edge has the name, Machine, host or Node "infra-c": correct the name, or set`, "--namespace"))
	})

	It("shows the boot of a host that is not recorded yet", func(ctx SpecContext) {
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "chosen"}}
		bmh.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "infra-o"}
		Expect(live.Create(ctx, bmh)).To(Succeed())
		Expect(table(ctx, "chosen")).To(HaveExactElements(HavePrefix("MACHINE"), HavePrefix("infra-o")))
	})

	It("says that a host without a boot is free, or which Machine's boot is missing", func(ctx SpecContext) {
		for name, why := range map[string]string{"free": "BareMetalHost edge/free has no boot: no Machine uses it", "used": "BareMetalHost edge/used has no boot: Metal3Machine m uses it, without a PoolbootConfig"} {
			bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name}}
			if name == "used" {
				bmh.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m"}
			}
			Expect(live.Create(ctx, bmh)).To(Succeed())
			out := &terminal{}
			Expect(running(ctx, &clitest.FakeConnection{WithWatch: live}, out, name)).To(Equal(1))
			Expect(out.lines()).To(ConsistOf("error: " + why))
		}
	})

	It("selects boots by Cluster or namespace", func(ctx SpecContext) {
		Expect(table(ctx, "--cluster", "other")).To(HaveLen(2))
		all := table(ctx, "-A")
		Expect(all).To(HaveLen(5))
		Expect(all[0]).To(HavePrefix("NAMESPACE MACHINE"))
		Expect(all[4]).To(HavePrefix("far infra-c"))
		Expect(table(ctx, "-n", "empty")).To(Equal([]string{"No boots in namespace empty."}))
		out := &terminal{}
		Expect(running(ctx, &clitest.FakeConnection{WithWatch: live}, out, "-n", "nowhere")).To(Equal(1))
		Expect(out.lines()).To(Equal([]string{"error: namespace nowhere does not exist: correct --namespace"}))
	})

	It("prints more columns with -o wide, and all times in JSON", func(ctx SpecContext) {
		wide := table(ctx, "-o", "wide")
		Expect(wide[0]).To(Equal("MACHINE HOST POOL STAGE SINCE AGE CLUSTER NODE CONFIG DESIRED UPDATE TOKEN FROM MESSAGE"))
		Expect(wide[2]).To(ContainSubstring("infra-1 <none> rendered-infra-1 <none> <none> 192.0.2.7,192.0.2.8(refused) "))
		Expect(wide[1]).To(HaveSuffix("<none> <none> <none> <none> <none>"))
		var boots []Boot
		Expect(json.Unmarshal([]byte(strings.Join(table(ctx, "-o", "json"), "\n")), &boots)).To(Succeed())
		Expect(boots).To(HaveLen(3))
		Expect(boots[0].Addresses).To(BeEmpty())
		Expect(boots[1].Addresses).To(Equal([]Address{{Address: "192.0.2.7"}, {Address: "192.0.2.8", Refused: true}}))
		Expect(boots[1].Timeline).To(HaveLen(2))
		Expect(boots[1].Message).To(Equal("it has not asked\x1b[31m"))
		Expect(table(ctx, "-o", "yaml")).To(ContainElements("- addresses: []", "stage: Provisioning"))
		Expect(table(ctx, "-o", "name", "infra-b")).To(Equal([]string{"poolbootconfig.bootstrap.cluster.x-k8s.io/infra-b-config"}))
	})

	It("shows the update of a host that has joined", func(ctx SpecContext) {
		updating := newBootConfig("edge", "infra-d", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.NodeRef.Name, c.Status.Boot.ServedConfiguration.Name, c.Status.Update.Desired.Name = "node-d", "rendered-infra-1", "rendered-infra-2"
			record.RevokeToken(c)
			c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeInPool"},
				{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: "Draining", Message: "Node node-d is drained"}}
		})
		Expect(live.Create(ctx, updating)).To(Succeed())
		Expect(table(ctx, "node-d")[1]).To(And(HavePrefix("infra-d <none> infra Ready"), HaveSuffix("update Draining: Node node-d is drained")))
		Expect(table(ctx, "-o", "wide", "node-d")[1]).To(ContainSubstring("node-d rendered-infra-1 rendered-infra-2 Draining "))
	})

	It("says first why a Node is not Ready", func(ctx SpecContext) {
		Expect(live.Create(ctx, newBootConfig("edge", "infra-d", func(c *bootstrapv1.PoolbootConfig) {
			record.RevokeToken(c)
			c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: "NodeNotReady", Message: "Node d is not Ready"},
				{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: "Waiting", Message: "the window opens"}}
		}))).To(Succeed())
		Expect(table(ctx, "infra-d")[1]).To(HaveSuffix("Node d is not Ready; update Waiting: the window opens"))
	})

	DescribeTable("says where to look if a host joins", func(ctx SpecContext, since time.Duration, message string) {
		Expect(live.Create(ctx, newBootConfig("edge", "infra-d", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Boot.ServedConfiguration.Name, c.Status.Boot.PreparedTime, c.Status.Requests.ServedTime = "rendered-infra-1", ago(since), ago(since)
			c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: "WaitingForKubelet", Message: "not yet"}}
		}))).To(Succeed())
		Expect(strings.Join(table(ctx, "infra-d"), " ")).To(And(ContainSubstring(" Joining "), HaveSuffix(message)))
	},
		Entry("for long", 6*time.Minute, "not yet. The host has its configuration, rendered-infra-1, and takes another one only when it boots again. "+
			"See its serial console: Ignition or the kubelet can fail there, and a mount that fails leads to emergency mode"),
		Entry("but not at once", time.Minute, "not yet"),
	)

	It("prints a line for every visible change with --watch", func(ctx SpecContext) {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		out, ended := &terminal{}, make(chan int, 1)
		go func() { ended <- running(watching, &clitest.FakeConnection{WithWatch: live}, out, "--watch") }()
		Eventually(out.lines).Should(HaveLen(4))

		a := &bootstrapv1.PoolbootConfig{}
		Expect(live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra-a-config"}, a)).To(Succeed())
		seen := 4
		for _, change := range []func(){
			func() { a.Annotations = map[string]string{"not": "shown"} }, // no line
			func() { a.Status.Boot.HostChosenTime = ago(0) },
			func() { a.Status.Requests.RequestedTime = ago(0) },
		} {
			before := a.DeepCopy()
			change()
			changed := a.DeepCopy()
			Expect(live.Patch(ctx, a, client.MergeFrom(before))).To(Succeed())
			a.Status = changed.Status
			Expect(live.Status().Patch(ctx, a, client.MergeFrom(before))).To(Succeed())
		}
		Eventually(out.lines).Should(ContainElement(ContainSubstring(" infra-a <none> infra Preparing")))
		Expect(live.Delete(ctx, a)).To(Succeed())
		Eventually(out.lines).Should(HaveLen(seen + 3))
		Expect(out.lines()[4]).To(MatchRegexp(`^\d\d:\d\d:\d\d infra-a <none> infra Provisioning`))
		Expect(out.lines()[6]).To(ContainSubstring(" infra-a <none> infra Deleted"))
		stop()
		Eventually(ended).Should(Receive(BeZero()))
	})

	DescribeTable("reports errors",
		func(ctx SpecContext, to input.Connection, why string, args ...string) {
			out := &terminal{}
			Expect(running(ctx, to, out, args...)).To(Equal(1))
			Expect(out.lines()).To(ConsistOf(And(HavePrefix("error: "), ContainSubstring(why))))
		},
		Entry("no kubeconfig", &clitest.FakeConnection{Failure: errors.New("no configuration")}, "no configuration"),
		Entry("an unknown output", &clitest.FakeConnection{}, "use json, yaml, wide or name, or leave the flag out", "-o", "xml"),
	)
})
