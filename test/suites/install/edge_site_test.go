package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterctl"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const edge = "edge" // the namespace in docs/install.md

// labelRules are the label rules of the template, as clusterctl prints them.
const labelRules = `
      - key: topology.kubernetes.io/zone
        onMissing: Block
        valueExpression: host.labels["rack"]
      - key: topology.kubernetes.io/region
        valueExpression: host.labels["site"]
`

// The specs are the life of one site, which the commands in docs/install.md create.
var _ = Describe("an edge site of the ClusterClass", Ordered, func() {
	var (
		environment []string
		generate    string // the last command of the page
		cluster     = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: edge, Name: edge}}
	)
	// run runs commands in a shell, with variables of clusterctl.
	run := func(ctx SpecContext, command string, variables ...string) (string, error) {
		shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
		shell.Env = slices.Concat(environment, variables)
		output, err := shell.CombinedOutput()
		return string(output), err
	}
	// applyAgain runs the last command of the page again, with other variables.
	applyAgain := func(ctx SpecContext, variables ...string) {
		GinkgoHelper()
		output, err := run(ctx, generate, variables...)
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).NotTo(ContainSubstring("Warning:"))
	}
	// generations returns the generation of each object whose change can replace Machines, and of each Machine.
	generations := func(g Gomega, ctx SpecContext) map[string]int64 {
		all := map[string]int64{}
		for kind, version := range map[string]schema.GroupVersion{
			"KubeadmControlPlane": controlplanev1.GroupVersion, "MachineDeployment": clusterv1.GroupVersion, "MachineSet": clusterv1.GroupVersion,
			"Machine": clusterv1.GroupVersion, "PoolbootConfigTemplate": bootstrapv1.GroupVersion, "Metal3MachineTemplate": infrav1.GroupVersion,
		} {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(version.WithKind(kind + "List"))
			g.Expect(k8sClient.List(ctx, list, client.InNamespace(edge))).To(Succeed())
			for _, object := range list.Items {
				all[kind+"/"+object.Name] = object.Generation
			}
		}
		return all
	}
	machines := func(g Gomega, ctx SpecContext) map[string][]string {
		var list clusterv1.MachineList
		g.Expect(k8sClient.List(ctx, &list, client.InNamespace(edge))).To(Succeed())
		names := map[string][]string{}
		for _, machine := range list.Items {
			role := machine.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]
			names[role] = append(names[role], machine.Name)
		}
		return names
	}
	// templates returns the names of the templates that a MachineDeployment uses.
	templates := func(ctx SpecContext, role string) (bootstrap, infrastructure string) {
		GinkgoHelper()
		var list clusterv1.MachineDeploymentList
		Expect(k8sClient.List(ctx, &list, client.InNamespace(edge), client.MatchingLabels{clusterv1.ClusterTopologyMachineDeploymentNameLabel: role})).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		spec := list.Items[0].Spec.Template.Spec
		return spec.Bootstrap.ConfigRef.Name, spec.InfrastructureRef.Name
	}
	getPool := func(ctx SpecContext, role string) *poolv1.MachineConfigPool {
		GinkgoHelper()
		pool := &poolv1.MachineConfigPool{}
		Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: edge, Name: edge + "-" + role}, pool)).To(Succeed())
		return pool
	}
	// rendered returns what a pool hands out.
	rendered := func(g Gomega, ctx SpecContext, role string) string {
		pool, config := &poolv1.MachineConfigPool{}, &poolv1.MachineConfig{}
		g.Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: edge, Name: edge + "-" + role}, pool)).To(Succeed())
		g.Expect(pool.Status.Configuration).NotTo(BeZero(), "%v", pool.Status.Conditions)
		g.Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: edge, Name: pool.Status.Configuration.Name}, config)).To(Succeed())
		return strings.Join(config.Spec.KernelArguments, " ") + string(config.Spec.Config.Raw)
	}
	// applyEdited runs the last command of the page with an edited template.
	applyEdited := func(ctx SpecContext, old, replacement string) (string, error) {
		GinkgoHelper()
		output, err := run(ctx, strings.Split(generate, " | ")[0])
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).To(ContainSubstring(old))
		path := filepath.Join(GinkgoT().TempDir(), "site.yaml")
		Expect(os.WriteFile(path, []byte(strings.Replace(output, old, replacement, 1)), 0o600)).To(Succeed())
		return run(ctx, "kubectl apply --server-side -f "+path)
	}
	expectReconciled := func(ctx SpecContext) {
		GinkgoHelper()
		Eventually(func(g Gomega) {
			g.Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			reconciled := conditions.Get(cluster, clusterv1.ClusterTopologyReconciledCondition)
			g.Expect(reconciled).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("ObservedGeneration", cluster.Generation)), "%v", reconciled)
		}).Should(Succeed())
	}

	BeforeAll(func(ctx SpecContext) {
		program, err := clusterctl.New(ctx, GinkgoT().TempDir(), filepath.Dir(filepath.Dir(releaseDir)), nil)
		Expect(err).NotTo(HaveOccurred())
		environment = append(program.Environment(controlPlane.Kubeconfig), "RELEASE="+releaseDir)
		for name, value := range variables {
			environment = append(environment, name+"="+value)
		}
		page, err := os.ReadFile(sourcetree.Path("docs", "install.md"))
		Expect(err).NotTo(HaveOccurred())
		block := regexp.MustCompile("(?s)\n### An edge site with a ClusterClass\n.*?\n```sh\n(.*?\nexport (\\w+)='(.*?)'\n(clusterctl .*?))```\n").FindStringSubmatch(string(page))
		Expect(block).NotTo(BeNil())
		environment = append(environment, block[2]+"="+block[3])
		generate = block[4]
		output, err := run(ctx, "kubectl create namespace edge")
		Expect(err).NotTo(HaveOccurred(), output)
		for _, name := range []string{"server-1", "server-2", "server-3", "server-4", "server-5"} {
			Expect(k8sClient.Create(ctx, &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: edge, Name: name}})).To(Succeed())
		}
		output, err = run(ctx, block[1])
		Expect(err).NotTo(HaveOccurred(), output)
		Expect(output).NotTo(ContainSubstring("Warning:"))
	})

	It("has Machines in three pools, each on hosts with the label of its pool", func(ctx SpecContext) {
		expectReconciled(ctx)
		Eventually(func(g Gomega) {
			g.Expect(machines(g, ctx)).To(And(HaveKeyWithValue("worker", HaveLen(2)), HaveKeyWithValue("infra", HaveLen(1)), HaveKeyWithValue("low-latency", HaveLen(1))))
		}).Should(Succeed())
		expectMachinesInPools(ctx, edge, map[string]int32{"worker": 2, "infra": 1, "low-latency": 1})
		var hosts infrav1.Metal3MachineTemplateList
		Expect(k8sClient.List(ctx, &hosts, client.InNamespace(edge), client.HasLabels{clusterv1.ClusterTopologyOwnedLabel})).To(Succeed())
		selected := map[string]string{}
		for _, template := range hosts.Items {
			selector := template.Spec.Template.Spec.HostSelector
			selected[template.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]] = metav1.FormatLabelSelector(selector)
		}
		Expect(selected).To(Equal(map[string]string{
			"": "pool=control-plane", "worker": "pool=worker", "infra": "pool=infra", "low-latency": "pool=low-latency"}))
	})

	It("has pools with kernel arguments, SSH keys and an update policy, and labels from the hosts", func(ctx SpecContext) {
		for _, role := range []string{"worker", "infra", "low-latency"} {
			Eventually(func(g Gomega) { g.Expect(rendered(g, ctx, role)).To(ContainSubstring("AAAAIJxf ops")) }).Should(Succeed())
			pool := getPool(ctx, role)
			Expect(pool.Spec.MaxUnavailable).To(HaveValue(HaveField("IntVal", BeEquivalentTo(1))))
			Expect(pool.Spec.Updates.FailureDomainLabel).To(Equal("topology.kubernetes.io/zone"))
			Expect(pool.Spec.Updates.MaintenanceWindow.Schedule).To(Equal("0 2 * * *"))
			Expect(pool.Spec.Updates.DrainTimeout()).To(BeEquivalentTo(1800))
			bootstrap, _ := templates(ctx, role)
			template := &bootstrapv1.PoolbootConfigTemplate{}
			Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: edge, Name: bootstrap}, template)).To(Succeed())
			Expect(template.Spec.Template.Spec.Node.LabelRules).To(Equal([]nodev1.NodeLabelRule{
				{Key: "topology.kubernetes.io/zone", ValueExpression: `host.labels["rack"]`, OnMissing: nodev1.OnMissingBlock},
				{Key: "topology.kubernetes.io/region", ValueExpression: `host.labels["site"]`},
			}))
		}
		Expect(rendered(Default, ctx, "low-latency")).To(HavePrefix(
			"systemd.cpu_affinity=0-1 isolcpus=managed_irq,2-N nohz_full=2-N rcu_nocbs=2-N{"))
		Expect(rendered(Default, ctx, "worker")).NotTo(ContainSubstring("isolcpus"))
	})

	It("does not change when it is applied again", func(ctx SpecContext) {
		before := generations(Default, ctx)
		applyAgain(ctx)
		expectReconciled(ctx)
		Consistently(func(g Gomega) { g.Expect(generations(g, ctx)).To(Equal(before)) }).WithTimeout(2 * time.Second).Should(Succeed())
	})

	It("follows SSH keys, CPUs and the update policy in its pools, without a change of a Machine or template", func(ctx SpecContext) {
		before := generations(Default, ctx)
		applyAgain(ctx, `SSH_AUTHORIZED_KEYS=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxg next"]`, "ISOLATED_CPUS=4-N", "MAX_UNAVAILABLE=50%", "DRAIN_TIMEOUT_SECONDS=60",
			"MAINTENANCE_SCHEDULE=30 3 * * 6", "MAINTENANCE_TIME_ZONE=Europe/Berlin")
		for role, want := range map[string]string{"worker": "", "infra": "", "low-latency": "isolcpus=managed_irq,4-N"} {
			Eventually(func(g Gomega) {
				g.Expect(rendered(g, ctx, role)).To(And(ContainSubstring("AAAAIJxg next"), Not(ContainSubstring("AAAAIJxf")), ContainSubstring(want)))
			}).Should(Succeed())
			pool := getPool(ctx, role)
			Expect(pool.Spec.MaxUnavailable).To(HaveValue(HaveField("StrVal", "50%")))
			Expect(pool.Spec.Updates.DrainTimeout()).To(BeEquivalentTo(60))
			Expect(pool.Spec.Updates.MaintenanceWindow).To(Equal(poolv1.MaintenanceWindow{Schedule: "30 3 * * 6", DurationMinutes: 180, TimeZone: "Europe/Berlin"}))
		}
		expectReconciled(ctx)
		Consistently(func(g Gomega) { g.Expect(generations(g, ctx)).To(Equal(before)) }).WithTimeout(2 * time.Second).Should(Succeed())
		applyAgain(ctx)
	})

	It("is scaled without another template, and keeps its Machines", func(ctx SpecContext) {
		before, first := generations(Default, ctx), machines(Default, ctx)
		applyAgain(ctx, "INFRA_MACHINE_COUNT=3")
		Eventually(func(g Gomega) {
			g.Expect(machines(g, ctx)["infra"]).To(And(HaveLen(3), ContainElements(first["infra"])))
		}).Should(Succeed())
		after := generations(Default, ctx)
		for name, generation := range before {
			if !strings.Contains(name, "edge-infra-") || strings.HasPrefix(name, "Machine/") {
				Expect(after).To(HaveKeyWithValue(name, generation))
			}
		}
		Expect(after).To(HaveLen(len(before) + 2))
		applyAgain(ctx)
		Eventually(func(g Gomega) { g.Expect(machines(g, ctx)["infra"]).To(HaveLen(1)) }).Should(Succeed())
	})

	DescribeTable("refuses a Cluster with", func(ctx SpecContext, old, replacement, message string) {
		output, err := applyEdited(ctx, old, replacement)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(`The Cluster "edge" is invalid: spec.topology.` + message))
	},
		Entry("a port that is a text", "value: 6443", "value: https",
			`variables[controlPlaneEndpointPort].value: Invalid value: "\"https\"": must be of type integer: "string"`),
		Entry("a port that does not exist", "value: 6443", "value: 70000",
			`variables[controlPlaneEndpointPort].value: Invalid value: "70000": should be less than or equal to 65535`),
		Entry("an image that is a number", "value: "+workerImage+"\n", "value: 5\n",
			`variables[imageURL].value: Invalid value: "5": must be of type string: "integer"`),
		Entry("a host selector that is a text", "\n              matchLabels:\n                pool: worker", " worker",
			`workers.machineDeployments[worker].variables.overrides[hostSelector].value: Invalid value: "\"worker\"": must be of type object: "string"`),
		Entry("a host selector without host labels", "matchLabels:\n                pool: worker", "labels:\n                pool: worker",
			`workers.machineDeployments[worker].variables.overrides[hostSelector].value.matchLabels: Required value`),
		Entry("a host label that is a number", "pool: infra", "pool: 5",
			`workers.machineDeployments[infra].variables.overrides[hostSelector].value.matchLabels.pool: Invalid value: "{\"matchLabels\":{\"pool\":5}}": `+
				`matchLabels.pool in body must be of type string: "integer"`),
		Entry("label rules that are a map", labelRules, " {topology.kubernetes.io/zone: rack}\n",
			`variables[labelRules].value: Invalid value: "{\"topology.kubernetes.io/zone\":\"rack\"}": must be of type array: "object"`),
		Entry("a label rule with an unknown action", "onMissing: Block", "onMissing: Wait", `variables[labelRules].value.[0].onMissing: Unsupported value`),
		Entry("an unknown variable", "name: labelRules", "name: sshKeys", `variables[sshKeys]: Invalid value`),
		Entry("a class that does not exist", "class: worker", "class: gpu",
			`workers.machineDeployments[0].class: Invalid value: "gpu": MachineDeploymentClass with name "gpu" does not exist in ClusterClass "poolboot-metal3"`),
	)

	DescribeTable("refuses a pool or MachineConfig with", func(ctx SpecContext, variable, message string) {
		output, err := run(ctx, generate, variable)
		Expect(err).To(HaveOccurred())
		Expect(output).To(ContainSubstring(message))
	},
		Entry("a maxUnavailable that is no number", "MAX_UNAVAILABLE=many",
			`"edge-worker" is invalid: spec.maxUnavailable: Invalid value: "many": it must be a number of at least 1, or a percentage such as "10%"`),
		Entry("a drain timeout that is a text", "DRAIN_TIMEOUT_SECONDS=long", `.spec.updates.drainTimeoutSeconds: expected numeric (int or float), got string`),
		Entry("a maintenance window that is no schedule", "MAINTENANCE_SCHEDULE=at night",
			`spec.updates.maintenanceWindow.schedule: Invalid value: "at night": it must be a schedule in the format of cron`),
		Entry("SSH keys that are a text", "SSH_AUTHORIZED_KEYS=ssh-ed25519 AAAA ops",
			`The MachineConfig "edge-98-ssh" is invalid: spec.config.passwd.users[0].sshAuthorizedKeys: Invalid value: must be a list, not the string "ssh-ed25519 AAAA ops"`),
		Entry("reserved CPUs that are no list of CPUs", "RESERVED_CPUS=two",
			`The MachineConfigPool "edge-low-latency" is invalid: spec.kubelet.configuration.reservedSystemCPUs: Invalid value: "two": must be a list of CPUs`),
	)

	It("replaces the Machines of one pool whose host selector changes, and no others", func(ctx SpecContext) {
		expectReconciled(ctx)
		before := machines(Default, ctx)
		bootstrap, infrastructure := templates(ctx, "low-latency")
		output, err := applyEdited(ctx, "pool: low-latency\n", "pool: low-latency\n                rack: r2\n")
		Expect(err).NotTo(HaveOccurred(), output)
		Eventually(func(g Gomega) {
			after := machines(g, ctx)
			g.Expect(after["low-latency"]).To(And(HaveLen(1), Not(Equal(before["low-latency"]))))
			delete(after, "low-latency")
			g.Expect(after).To(And(HaveKeyWithValue("worker", ConsistOf(before["worker"])), HaveKeyWithValue("infra", before["infra"])))
		}).Should(Succeed())
		nextBootstrap, nextInfrastructure := templates(ctx, "low-latency")
		Expect(nextBootstrap).To(Equal(bootstrap))
		Expect(nextInfrastructure).NotTo(Equal(infrastructure))
	})

	It("replaces workers within maxUnavailable, and not the control plane, when a label rule changes", func(ctx SpecContext) {
		expectReconciled(ctx)
		before, first := machines(Default, ctx), generations(Default, ctx)
		output, err := applyEdited(ctx, `labels["rack"]`, `labels["room"]`)
		Expect(err).NotTo(HaveOccurred(), output)
		Eventually(func(g Gomega) {
			after := machines(g, ctx)
			g.Expect(after["worker"]).To(And(HaveLen(2), ContainElement(BeElementOf(before["worker"])), ContainElement(Not(BeElementOf(before["worker"])))))
			g.Expect(after["infra"]).To(And(HaveLen(1), Not(Equal(before["infra"]))))
			g.Expect(after["low-latency"]).To(And(HaveLen(1), Not(Equal(before["low-latency"]))))
		}).Should(Succeed())
		key := "KubeadmControlPlane/" + cluster.Spec.ControlPlaneRef.Name
		Expect(generations(Default, ctx)).To(HaveKeyWithValue(key, first[key]))
	})

	It("names the place in a label rule that does not compile, and keeps its Machines", func(ctx SpecContext) {
		expectReconciled(ctx)
		before := generations(Default, ctx)
		output, err := applyEdited(ctx, `labels["rack"]`, `label["rack"]`)
		Expect(err).NotTo(HaveOccurred(), output)
		Eventually(func(g Gomega) {
			g.Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			g.Expect(conditions.GetMessage(cluster, clusterv1.ClusterTopologyReconciledCondition)).To(
				ContainSubstring("spec.template.spec.node.labelRules[0].valueExpression: Invalid value"))
		}).Should(Succeed())
		Expect(conditions.GetMessage(cluster, clusterv1.ClusterTopologyReconciledCondition)).To(ContainSubstring("1:5: undefined field 'label'"))
		Expect(generations(Default, ctx)).To(Equal(before))
	})
})
