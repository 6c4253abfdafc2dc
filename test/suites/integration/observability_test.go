package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/tree"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// makeNodeReady sets the status of a config's Node as its kubelet does, and waits until the Node is in its pool.
func makeNodeReady(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	node := t.Node(ctx, config)
	before := node.DeepCopy()
	now := metav1.Now()
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", LastHeartbeatTime: now, LastTransitionTime: now},
	}
	ExpectWithOffset(1, lab.WorkloadClient.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
	EventuallyWithOffset(1, t.Condition(config, bootstrapv1.NodeInPoolCondition)).WithContext(ctx).Should(HavePrefix("True"))
}

// startBoots starts kubectl poolboot boots in a tenant's namespace, and returns its output and a function that stops
// it.
func startBoots(ctx context.Context, t *tenant.Tenant, args ...string) (*gbytes.Buffer, func()) {
	binDir, err := process.BinDir()
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	out := gbytes.NewBuffer()
	program := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), append([]string{"boots", "-n", t.Namespace, "--kubeconfig", lab.Management.Kubeconfig}, args...)...)
	program.Stdout, program.Stderr = out, out
	ExpectWithOffset(1, program.Start()).To(Succeed())
	return out, func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}
}

// describeReady returns a function that reads an object's Ready condition as clusterctl describe cluster shows it, or
// "" for an object that it does not show.
func describeReady(ctx context.Context, t *tenant.Tenant, object client.Object) func() (string, error) {
	return func() (string, error) {
		shown, err := tree.Discovery(ctx, lab.ManagementClient, t.Namespace, t.Namespace, tree.DiscoverOptions{})
		if err != nil {
			return "", err
		}
		found := shown.GetObject(object.GetUID())
		if found == nil {
			return "", nil
		}
		ready := tree.GetReadyCondition(found)
		if ready == nil {
			return "", nil
		}
		return string(ready.Status) + " " + ready.Reason + ": " + ready.Message, nil
	}
}

// sumManagerMetric returns a function that sums a metric of the manager over all series that match the labels.
func sumManagerMetric(ctx context.Context, name string, labels map[string]string) func() (float64, error) {
	return func() (sum float64, err error) {
		families, err := lab.Manager.Metrics(ctx)
		if err != nil || families[name] == nil {
			return 0, err
		}
		for _, metric := range families[name].Metric {
			matches := true
			for _, label := range metric.Label {
				want, ok := labels[label.GetName()]
				matches = matches && (!ok || want == label.GetValue())
			}
			if matches {
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
		return sum, nil
	}
}

var _ = Describe("A boot", func() {
	It("can be followed on its PoolbootConfig, in clusterctl describe cluster and by the metrics", func(ctx SpecContext) {
		start := time.Now().Truncate(time.Second)
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		cluster := map[string]string{"cluster": t.Namespace + "/" + t.Namespace}
		with := func(key, value string) map[string]string {
			return map[string]string{"cluster": cluster["cluster"], key: value}
		}
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_boots", with("stage", "Joining"))).Should(Equal(1.0))
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_nodes", with("state", "WaitingForKubelet"))).Should(Equal(1.0))
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_preregistrations_total", with("outcome", "Created"))).Should(Equal(1.0))
		out, stop := startBoots(ctx, t, "--watch")
		defer stop()
		Eventually(out).Should(gbytes.Say(`Joining`))
		makeNodeReady(ctx, t, config)
		Eventually(out).Should(gbytes.Say(config.Status.HostRef.Name + ` +infra +Ready`))

		Eventually(ctx, func(ctx context.Context) (steps []record.Step, err error) {
			err = lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			for _, moment := range record.Moments(config) {
				steps = append(steps, moment.Step)
				Expect(moment.Time).To(And(BeTemporally(">=", start), BeTemporally("<=", time.Now())))
			}
			return steps, err
		}).Should(Equal([]record.Step{record.StepCreated, record.StepDataSecretCreated, record.StepHostChosen, record.StepBootRequested,
			record.StepBootPrepared, record.StepConfigServed, record.StepKubeletRegistered, record.StepNodeReady, record.StepTokenRevoked}))
		Expect(record.StageDurations(config)).To(And(HaveKey(record.StageProvisioning), HaveKey(record.StagePreparing), HaveKey(record.StageJoining)))
		sum := time.Duration(0)
		for _, took := range record.StageDurations(config) {
			sum += took
		}
		Expect(sum).To(Equal(config.Status.Boot.NodeReadyTime.Sub(config.CreationTimestamp.Time)))
		for _, about := range []string{"machine " + t.Machine(ctx, config).Name, "node " + config.Status.NodeRef.Name} {
			shell := &terminal{dir: GinkgoT().TempDir()}
			Eventually(ctx, func() string {
				return unwrap(shell.run(ctx, "kubectl poolboot explain "+about+" -n "+t.Namespace))
			}).Should(And(MatchRegexp(`Pool: infra Why: recorded for Node \S+; MachineLabels: Machine \S+ has node-role.kubernetes.io/infra= `),
				MatchRegexp(`rack.node.cluster.x-k8s.io/id=r7 Present Machine metadata.labels`), ContainSubstring("TokenRevoked"), HaveSuffix("To do: nothing")))
			Expect(shell.code).To(BeZero())
		}
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_boots", with("stage", "Ready"))).Should(Equal(1.0))
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_nodes", with("state", "Ready"))).Should(Equal(1.0))
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_boots_total", with("outcome", "Done"))).Should(Equal(3.0), "Pending, Preparing, Joining")
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_boot_stage_seconds", map[string]string{"stage": "Joining"})).Should(BeNumerically(">=", 1))

		By("creating no event, because there was no problem")
		shell := &terminal{dir: GinkgoT().TempDir()}
		Expect(shell.run(ctx, "kubectl events --for poolbootconfig/"+config.Name+" -n "+t.Namespace)).To(ContainSubstring("No events found"))
		Expect(shell.run(ctx, "kubectl events --for machineconfigpool.poolboot.io/"+t.Pool("infra").Name+" -n "+t.Namespace)).NotTo(ContainSubstring("error"))
		Expect(shell.code).To(BeZero())
	})

	It("has no lastTimestamp in its events, because the API server refuses it", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: "sorted"}, EventTime: metav1.NowMicro(),
			Type: corev1.EventTypeNormal, Reason: "Sorted", Action: "Sort", ReportingController: "poolboot.example.com/a", ReportingInstance: "a",
			Regarding:               corev1.ObjectReference{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Namespace: t.Namespace, Name: "a"},
			DeprecatedLastTimestamp: metav1.Now()}
		Expect(lab.ManagementClient.Create(ctx, event)).To(MatchError(ContainSubstring("lastTimestamp: Invalid value")))
		event.DeprecatedLastTimestamp = metav1.Time{}
		Expect(lab.ManagementClient.Create(ctx, event)).To(Succeed())
	})

	It("that is blocked reports the reason in clusterctl describe cluster", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Create(ctx, t.Pool("storage"))
		t.Deploy(ctx, tenant.Deployment{Name: "both", Replicas: 1, Labels: map[string]string{
			"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/storage": ""}})
		config := t.Config(ctx, "both")
		Eventually(ctx, t.Condition(config, bootstrapv1.PoolDecidedCondition)).Should(HavePrefix("False"))
		Eventually(ctx, describeReady(ctx, t, config)).Should(And(HavePrefix("False PoolConflict: "), ContainSubstring("infra"), ContainSubstring("storage")))
		Eventually(ctx, describeReady(ctx, t, t.Machine(ctx, config))).Should(ContainSubstring("infra"), "the Machine repeats the message")
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_pool_conflicts_total", map[string]string{"cluster": t.Namespace + "/" + t.Namespace, "kind": "Machine"})).
			Should(Equal(1.0))

		shell := &terminal{dir: GinkgoT().TempDir()}
		Expect(unwrap(shell.run(ctx, "kubectl poolboot boots -n "+t.Namespace))).To(MatchRegexp(
			`^MACHINE HOST POOL STAGE SINCE AGE MESSAGE ` + t.Machine(ctx, config).Name + ` <none> <none> Pending [\dms]+ [\dms]+ PoolDecided: .*infra and storage`))
		Expect(shell.code).To(BeZero())
	})

	It("has exactly the documented metrics, types and labels", func(ctx SpecContext) {
		document, err := os.ReadFile(sourcetree.Path("docs", "metrics.md"))
		Expect(err).NotTo(HaveOccurred())
		documented := map[string]string{}
		for _, row := range regexp.MustCompile("(?m)^\\| `(poolboot_\\w+)` \\| (\\w+) \\| ?(.*?) \\| ([a-z ]+) \\|").FindAllStringSubmatch(string(document), -1) {
			labels := strings.FieldsFunc(row[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
			slices.Sort(labels)
			documented[row[1]] = row[4] + " " + row[2] + " " + strings.Join(labels, ",")
		}

		// A boot, an Ignition that is too old, a rotated token, a conflict, a pool without its Cluster and one that is
		// paused give each metric a value.
		t := tenant.New(ctx, lab, 1)
		t.Create(ctx, t.Pool("storage"))
		lost := t.Pool("lost")
		lost.Spec.ClusterName = "nowhere"
		paused := t.Pool("paused")
		paused.Spec.Paused = new(true)
		t.Create(ctx, lost, paused)
		Eventually(ctx, getPoolCondition(paused, poolv1.UpdatedCondition)).Should(HavePrefix("True"))
		t.Create(ctx, t.MachineConfig("50-paused", "paused", "/etc/paused", "1"))
		t.Deploy(ctx, tenant.Deployment{Name: "both", Replicas: 1, Labels: map[string]string{
			"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/storage": ""}})
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: func(spec *bootstrapv1.BootSpec) {
			spec.ExtraConfig = &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.3.0"},"kernelArguments":{"shouldExist":["quiet"]}}`)}}
		}})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		code, body, err := requestFrom(ctx, "127.0.0.1", t.Pointer(ctx, config), "application/vnd.coreos.ignition+json;version=3.2.0")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(503))
		Expect(body).To(ContainSubstring("IgnitionTooOld"))
		t.Rotate(ctx, config)
		makeNodeReady(ctx, t, config)

		Eventually(ctx, func() (map[string]string, error) {
			exposed := map[string]string{}
			for program, of := range map[string]*site.Program{"manager": lab.Manager, "config server": lab.ConfigServer} {
				families, err := of.Metrics(ctx)
				if err != nil {
					return nil, err
				}
				for name, family := range families {
					if !strings.HasPrefix(name, "poolboot_") {
						continue
					}
					var labels []string
					for _, label := range family.Metric[0].Label {
						labels = append(labels, label.GetName())
					}
					slices.Sort(labels)
					exposed[name] = program + " " + strings.ToLower(family.GetType().String()) + " " + strings.Join(labels, ",")
				}
			}
			return exposed, nil
		}).Should(Equal(documented))

		By("running each query of the dashboards on these metrics")
		binDir, err := process.BinDir()
		Expect(err).NotTo(HaveOccurred())
		folder := GinkgoT().TempDir()
		for program, of := range map[string]*site.Program{"poolboot-manager": lab.Manager, "poolboot-config-server": lab.ConfigServer} {
			metrics, err := of.Exposition(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(filepath.Join(folder, program+".txt"), metrics, 0o600)).To(Succeed())
		}
		dashboards, err := filepath.Glob(sourcetree.Path("config", "grafana", "*.json"))
		Expect(err).NotTo(HaveOccurred())
		Expect(dashboards).To(HaveLen(3))
		output, err := exec.CommandContext(ctx, filepath.Join(binDir, "promrules"), append([]string{"--scraped", folder}, dashboards...)...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", output)
		for right, wrong := range map[string]struct{ text, says string }{
			"sum by (state) (poolboot_nodes{": {"sum by (state) (poolboot_node{", "there is no metric poolboot_node{"},
			"by (state)":                      {"by (status)", "there is no label status"},
			"{{state}}":                       {"{{reason}}", "the result has no label reason"},
			`poolboot_boots_blocked{`:         {`poolboot_boots_blocked{host=~\".*\",`, "there is no label host"},
			`=~\"$pool\"`:                     {`=~\"$role\"`, "there is no variable $role"},
		} {
			fleet, err := os.ReadFile(sourcetree.Path("config", "grafana", "fleet.json"))
			Expect(err).NotTo(HaveOccurred())
			changed := filepath.Join(folder, "changed.json")
			Expect(os.WriteFile(changed, []byte(strings.ReplaceAll(string(fleet), right, wrong.text)), 0o600)).To(Succeed())
			output, err := exec.CommandContext(ctx, filepath.Join(binDir, "promrules"), "--scraped", folder, changed).CombinedOutput()
			Expect(err).To(HaveOccurred(), "%q instead of %q", wrong.text, right)
			Expect(string(output)).To(ContainSubstring(wrong.says))
		}
	})

	It("has workqueue metrics of all documented controllers of the manager", func(ctx SpecContext) {
		document, err := os.ReadFile(sourcetree.Path("docs", "metrics.md"))
		Expect(err).NotTo(HaveOccurred())
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(string(document), -1) {
			documented = append(documented, row[1])
		}

		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		waitForConfiguration(ctx, t, t.Config(ctx, "infra"))
		Eventually(ctx, func(g Gomega) {
			families, err := lab.Manager.Metrics(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			running := listControllers(families["controller_runtime_max_concurrent_reconciles"])
			g.Expect(running).To(ConsistOf(documented))
			for _, name := range []string{"adds_total", "queue_duration_seconds", "work_duration_seconds", "retries_total",
				"unfinished_work_seconds", "longest_running_processor_seconds"} {
				g.Expect(listControllers(families["workqueue_"+name])).To(ConsistOf(running), name)
			}
			// The depth of a priority queue has no series before its first item.
			g.Expect(listControllers(families["workqueue_depth"])).To(ContainElements(
				"host", "certificate", "clusternodes", "machineconfigpool", "overlay"))
			g.Expect(sumMetric(families["workqueue_adds_total"], "host")).To(BeNumerically(">", 0))
			g.Expect(sumMetric(families["workqueue_work_duration_seconds"], "host")).To(BeNumerically(">", 0))
		}).Should(Succeed())
	})
})

// listControllers returns the distinct values of a metric's label "controller".
func listControllers(family *dto.MetricFamily) (names []string) {
	for _, metric := range family.GetMetric() {
		for _, label := range metric.Label {
			if label.GetName() == "controller" && !slices.Contains(names, label.GetValue()) {
				names = append(names, label.GetValue())
			}
		}
	}
	return names
}

// sumMetric sums a metric of one controller. For histograms it sums the number of samples.
func sumMetric(family *dto.MetricFamily, controller string) (sum float64) {
	for _, metric := range family.GetMetric() {
		if slices.Contains(listControllers(&dto.MetricFamily{Metric: []*dto.Metric{metric}}), controller) {
			sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
