package updates

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// Files of the pool follow, by what its policy says about their changes.
const (
	quietFile   = "/etc/follow/quiet"   // None
	serviceFile = "/etc/follow/service" // Restart follow.service
	rebootFile  = "/etc/follow/reboot"  // no policy
)

// follower is a running host of the pool follow.
type follower struct {
	*baremetal.Host
	config *bootstrapv1.PoolbootConfig
}

func (f *follower) node() string { return f.config.Status.NodeRef.Name }

// started returns when follow.service started, in a form that can be compared.
func (f *follower) started(ctx context.Context) string {
	when, _ := f.Run(ctx, "systemctl", "show", "--property=ExecMainStartTimestampMonotonic", "--value", "follow.service")
	return strings.TrimSpace(when)
}

// These specs follow the two hosts of a pool through changes of its configuration. Each depends on those before it.
var _ = Describe("Running hosts of a pool", Ordered, func() {
	var (
		t       *tenant.Tenant
		pool    *poolv1.MachineConfigPool
		change  *poolv1.MachineConfig
		history *site.NodeHistory
		hosts   []*follower
	)

	// configure changes the files of the pool, and the drop-in of the kubelet unless it is empty.
	files := map[string]string{quietFile: "1", serviceFile: "1", rebootFile: "1"}
	document := func(dropin string) []byte {
		GinkgoHelper()
		units := []any{map[string]any{"name": "follow.service", "enabled": true,
			"contents": "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"}}
		if dropin != "" {
			units = append(units, map[string]any{"name": "kubelet.service", "dropins": []any{map[string]any{"name": "60-follow.conf", "contents": dropin}}})
		}
		var written []any
		for _, path := range slices.Sorted(maps.Keys(files)) {
			written = append(written, map[string]any{"path": path, "mode": 0o640, "contents": map[string]any{"source": "data:," + files[path]}})
		}
		raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.4.0"},
			"storage": map[string]any{"files": written}, "systemd": map[string]any{"units": units}})
		Expect(err).NotTo(HaveOccurred())
		return raw
	}
	configure := func(ctx context.Context, dropin string) {
		GinkgoHelper()
		before := change.DeepCopy()
		change.Spec.Config = &runtime.RawExtension{Raw: document(dropin)}
		Expect(lab.ManagementClient.Patch(ctx, change, client.MergeFrom(before))).To(Succeed())
	}
	// rendered returns the name of the config that the pool renders now.
	rendered := func(ctx context.Context) string {
		GinkgoHelper()
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		return pool.Status.Configuration.Name
	}
	updated := func(f *follower) func(context.Context) (string, error) {
		return t.Condition(f.config, bootstrapv1.UpdatedCondition)
	}
	// waitForUpdate waits until all hosts run what the pool renders now.
	waitForUpdate := func(ctx context.Context, before string) {
		GinkgoHelper()
		Eventually(ctx, rendered).ShouldNot(Or(BeEmpty(), Equal(before)), "the pool renders another config")
		name := pool.Status.Configuration.Name
		for _, f := range hosts {
			Eventually(ctx, func() (string, error) {
				err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(f.config), f.config)
				return f.config.Status.Boot.ServedConfiguration.Name, err
			}).Should(Equal(name), f.Name())
			Eventually(ctx, updated(f)).Should(HavePrefix("True"), f.Name())
		}
	}
	// effect returns what the agent says that the last update did to the host.
	effect := func(ctx context.Context, f *follower) string {
		GinkgoHelper()
		_, effect, _ := strings.Cut(t.Node(ctx, f.config).Annotations[agentv1.EffectAnnotation], " ")
		return effect
	}
	// mostAway returns how many hosts were away at a time since a moment, at every version of every Node.
	mostAway := func(since time.Time) int {
		return site.MostAway(history.Versions(), since, hosts[0].node(), hosts[1].node())
	}

	BeforeAll(func(ctx SpecContext) {
		watching, end := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(end)
		var err error
		history, err = site.RecordNodes(watching, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t = tenant.New(ctx, lab, 2)
		pool = t.Pool("follow")
		pool.Spec.Updates.MinReadySeconds, pool.Spec.Updates.ReadyDeadlineSeconds = ptr.To[int32](2), 60
		pool.Spec.Updates.DisruptionPolicy = poolv1.DisruptionPolicy{Files: []poolv1.PathDisruptionPolicy{
			{Path: quietFile, Actions: poolv1.DisruptionActions{{Type: poolv1.ActionNone}}},
			{Path: serviceFile, Actions: poolv1.DisruptionActions{{Type: poolv1.ActionRestart, Unit: "follow.service"}}},
		}}
		change = t.IgnitionMachineConfig("51-follow", "follow", document(""))
		t.Create(ctx, pool, change)
		t.Deploy(ctx, tenant.Deployment{Name: "follow", Replicas: 2, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "follow" }})
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, "follow") }).Should(HaveLen(2))
		for _, config := range t.Configs(ctx, "follow") {
			f := &follower{config: &config}
			expectJoined(ctx, t, f.config)
			f.Host = lab.Hardware.Host(f.config.Status.HostRef.Name)
			hosts = append(hosts, f)
		}
	}, NodeTimeout(5*time.Minute))

	It("run an agent that knows what Ignition wrote", func(ctx SpecContext) {
		for _, f := range hosts {
			Eventually(ctx, updated(f)).Should(HavePrefix("True"))
			Expect(t.Node(ctx, f.config).Annotations).To(And(
				HaveKeyWithValue(agentv1.CurrentAnnotation, f.config.Status.Update.DesiredRevision),
				HaveKeyWithValue(agentv1.DesiredAnnotation, f.config.Status.Update.DesiredRevision),
				HaveKeyWithValue(agentv1.StateAnnotation, string(agentv1.Done)),
				Not(HaveKey(agentv1.DriftAnnotation))))
		}
	}, SpecTimeout(2*time.Minute))

	It("change a file and nothing else, if the policy says None", func(ctx SpecContext) {
		boots, starts := map[*follower]string{}, map[*follower]string{}
		for _, f := range hosts {
			boots[f], starts[f] = f.BootID(), f.started(ctx)
		}
		since, before := time.Now(), rendered(ctx)
		files[quietFile] = "2"
		configure(ctx, "")
		waitForUpdate(ctx, before)
		for _, f := range hosts {
			Expect(f.Run(ctx, "cat", quietFile)).To(Equal("2"))
			Expect(f.Run(ctx, "stat", "--format=%a %u", quietFile)).To(Equal("640 0\n"))
			Expect(f.BootID()).To(Equal(boots[f]))
			Expect(f.started(ctx)).To(Equal(starts[f]))
			Expect(effect(ctx, f)).To(Equal("None"))
		}
		Expect(mostAway(since)).To(BeZero())
	}, SpecTimeout(3*time.Minute))

	It("restart the unit that the policy names, without a reboot", func(ctx SpecContext) {
		boots, starts := map[*follower]string{}, map[*follower]string{}
		for _, f := range hosts {
			boots[f], starts[f] = f.BootID(), f.started(ctx)
		}
		before := rendered(ctx)
		files[serviceFile] = "2"
		configure(ctx, "")
		waitForUpdate(ctx, before)
		for _, f := range hosts {
			Expect(f.Run(ctx, "cat", serviceFile)).To(Equal("2"))
			Expect(f.BootID()).To(Equal(boots[f]))
			Expect(f.started(ctx)).NotTo(Equal(starts[f]))
			Expect(effect(ctx, f)).To(Equal("Restart"))
		}
	}, SpecTimeout(3*time.Minute))

	It("reboot one after the other, drained, for a change that no policy covers", func(ctx SpecContext) {
		boots := map[*follower]string{}
		for _, f := range hosts {
			boots[f] = f.BootID()
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: t.Namespace + "-drained"},
			Spec: corev1.PodSpec{NodeName: hosts[0].node(), AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers: []corev1.Container{{Name: "pause", Image: "localhost/pause:1", ImagePullPolicy: corev1.PullNever}}}}
		Expect(lab.WorkloadClient.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { _ = lab.WorkloadClient.Delete(ctx, pod) })

		since, before := time.Now(), rendered(ctx)
		files[rebootFile] = "2"
		configure(ctx, "")
		waitForUpdate(ctx, before)
		for _, f := range hosts {
			Expect(f.Run(ctx, "cat", rebootFile)).To(Equal("2"))
			Expect(f.BootID()).NotTo(Or(BeEmpty(), Equal(boots[f])))
			Expect(effect(ctx, f)).To(Equal("Reboot"))
			Eventually(ctx, func() *corev1.Node { return t.Node(ctx, f.config) }).Should(And(
				HaveField("Spec.Unschedulable", BeFalse()), Satisfy(util.IsNodeReady)))
			Expect(slices.ContainsFunc(history.Of(f.node()), func(v site.NodeVersion) bool { return v.Node.Spec.Unschedulable })).To(BeTrue(), "it was cordoned")
		}
		Expect(mostAway(since)).To(Equal(1))
		Expect(apierrors.IsNotFound(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(pod), pod))).To(BeTrue(), "the Pod was evicted")
	}, SpecTimeout(5*time.Minute))

	It("did what was predicted until now", func(ctx SpecContext) {
		events := &eventsv1.EventList{}
		Expect(lab.ManagementClient.List(ctx, events, client.InNamespace(t.Namespace))).To(Succeed())
		Expect(events.Items).To(ContainElement(HaveField("Reason", bootstrapv1.EventUpdated)))
		Expect(events.Items).NotTo(ContainElement(HaveField("Reason", bootstrapv1.EventPredictionDiffers)))
	})

	It("report a file that was changed by hand, without its contents, until it is corrected", func(ctx SpecContext) {
		f := hosts[0]
		drift := func() string { return t.Node(ctx, f.config).Annotations[agentv1.DriftAnnotation] }
		Expect(f.Run(ctx, "sh", "-c", "printf secret >"+quietFile)).To(BeEmpty())
		Eventually(ctx, drift).Should(And(ContainSubstring(quietFile), Not(ContainSubstring("secret"))))
		Eventually(ctx, updated(f)).Should(And(HavePrefix("False "+string(agentv1.Degraded)), ContainSubstring(quietFile)))
		Expect(f.Run(ctx, "sh", "-c", "printf 2 >"+quietFile)).To(BeEmpty())
		Eventually(ctx, drift).Should(BeEmpty())
		Eventually(ctx, updated(f)).Should(HavePrefix("True"))
	}, SpecTimeout(2*time.Minute))

	It("correct it if the pool says so", func(ctx SpecContext) {
		before := pool.DeepCopy()
		pool.Spec.Updates.DriftPolicy = poolv1.DriftRepair
		Expect(lab.ManagementClient.Patch(ctx, pool, client.MergeFrom(before))).To(Succeed())
		f := hosts[0]
		revision := f.config.Status.Update.DesiredRevision
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(f.config), f.config)
			return t.Node(ctx, f.config).Annotations[agentv1.CurrentAnnotation], err
		}).ShouldNot(Equal(revision), "the agent has the new rule")
		Expect(f.Run(ctx, "sh", "-c", "printf other >"+quietFile+"; chmod 600 "+serviceFile)).To(BeEmpty())
		Eventually(ctx, f.Run).WithArguments("cat", quietFile).WithTimeout(2 * time.Minute).Should(Equal("2"))
		Eventually(ctx, f.Run).WithArguments("stat", "--format=%a", serviceFile).Should(Equal("640\n"))
		Eventually(ctx, updated(f)).Should(HavePrefix("True"))
	}, SpecTimeout(4*time.Minute))

	It("report a unit that fails, and within a minute an agent that does not run, while their Nodes stay Ready", func(ctx SpecContext) {
		f := hosts[0]
		systemctl := func(arguments ...string) {
			GinkgoHelper()
			_, err := f.Run(ctx, append([]string{"systemctl"}, arguments...)...)
			Expect(err).NotTo(HaveOccurred())
		}
		systemctl("kill", "--signal=KILL", "follow.service")
		Eventually(ctx, updated(f)).WithTimeout(time.Minute).Should(And(HavePrefix("False "+bootstrapv1.UnitsFailingReason), ContainSubstring("follow.service: it failed: result signal, signal 9")))
		systemctl("restart", "follow.service")

		systemctl("stop", "poolboot-agent.service")
		Eventually(ctx, updated(f)).WithTimeout(time.Minute).Should(And(HavePrefix("False "+bootstrapv1.AgentNotAnsweringReason), ContainSubstring("it has stopped")))
		Expect(util.IsNodeReady(t.Node(ctx, f.config))).To(BeTrue())
		systemctl("start", "poolboot-agent.service")
		Eventually(ctx, updated(f)).WithTimeout(time.Minute).Should(HavePrefix("True"))

		systemctl("kill", "--signal=STOP", "poolboot-agent.service") // it is frozen, until systemd kills it
		Eventually(ctx, func() string { return t.Node(ctx, f.config).Annotations[agentv1.BootAnnotation] }).WithTimeout(time.Minute).Should(Equal(agentv1.AgentStopped))
		Eventually(ctx, func() string { return t.Node(ctx, f.config).Annotations[agentv1.BootAnnotation] }).WithTimeout(time.Minute).Should(Equal(f.BootID()))
	}, SpecTimeout(5*time.Minute))

	It("are in their pool from the first version of a Node that was deleted while they were off", func(ctx SpecContext) {
		f := hosts[0]
		node := t.Node(ctx, f.config)
		Expect(f.PowerCut()).To(Succeed())
		Expect(lab.WorkloadClient.Delete(ctx, node)).To(Succeed())
		since := time.Now()
		Expect(f.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, func() (*corev1.Node, error) {
			current := &corev1.Node{}
			return current, lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: f.node()}, current)
		}).Should(And(Satisfy(util.IsNodeReady), HaveField("UID", Not(Equal(node.UID))), HaveField("Spec.Taints", BeEmpty())))
		versions := slices.DeleteFunc(history.Of(f.node()), func(v site.NodeVersion) bool { return v.Seen.Before(since) || v.Deleted || v.Node.UID == node.UID })
		verdict := site.Judge(versions, "follow", t.Pools(ctx))
		Expect(verdict).To(Equal(site.Verdict{Versions: len(versions), BornInPool: true}))
		Eventually(ctx, updated(f)).Should(HavePrefix("True"))
	}, SpecTimeout(4*time.Minute))

	It("return to the previous configuration by themselves if the kubelet does not start, and the other hosts are spared", func(ctx SpecContext) {
		before := rendered(ctx)
		configure(ctx, "[Service]\nExecStartPre=/bin/false\n")
		var failed *follower
		Eventually(ctx, func() (states []string) {
			for _, f := range hosts {
				state, _ := updated(f)(ctx)
				if strings.HasPrefix(state, "False "+string(agentv1.Degraded)) {
					failed = f
				}
				states = append(states, state)
			}
			return states
		}).WithTimeout(5 * time.Minute).Should(ContainElement(HavePrefix("False " + string(agentv1.Degraded))))
		Expect(failed.Run(ctx, "find", "/etc/systemd/system", "-name", "60-follow.conf")).To(BeEmpty())
		Eventually(ctx, func() bool { return util.IsNodeReady(t.Node(ctx, failed.config)) }).Should(BeTrue())
		for _, f := range hosts {
			if f != failed {
				Expect(f.config.Status.Boot.ServedConfiguration.Name).To(Equal(before))
				Expect(f.config.Status.Update.Desired.Name).To(Equal(before), "the failing host keeps its slot")
			}
		}

		By("reverting the MachineConfig")
		configure(ctx, "")
		for _, f := range hosts {
			Eventually(ctx, updated(f)).Should(HavePrefix("True"))
			Expect(f.config.Status.Boot.ServedConfiguration.Name).To(Equal(before), "the same content has the same name")
			Eventually(ctx, func() bool { return t.Node(ctx, f.config).Spec.Unschedulable }).Should(BeFalse())
		}
	}, SpecTimeout(8*time.Minute))
})
