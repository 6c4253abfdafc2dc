package clusterctl_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const poolbootNamespace = "poolboot-system"

var infraLabels = map[string]string{"node-role.kubernetes.io/infra": ""}

// The specs are the life of one installation.
var _ = Describe("Poolboot installed with clusterctl", Ordered, func() {
	var (
		lab        *site.Site
		t          *tenant.Tenant
		deployment *clusterv1.MachineDeployment
		history    *site.NodeHistory
	)
	// scaleTo scales the MachineDeployment and returns a function that waits until each of its hosts is in its pool.
	scaleTo := func(ctx context.Context, replicas int) (waitForHosts func()) {
		GinkgoHelper()
		t.Scale(ctx, deployment, int32(replicas))
		return func() {
			GinkgoHelper()
			// A Cluster API that is killed can create too many Machines, and delete some.
			Eventually(ctx, func(g Gomega) {
				configs := t.Configs(ctx, deployment.Name)
				g.Expect(configs).To(HaveLen(replicas))
				for _, config := range configs {
					g.Expect(conditions.IsTrue(&config, bootstrapv1.NodeInPoolCondition)).To(BeTrue(), config.Name)
				}
			}).Should(Succeed())
			for _, config := range t.Configs(ctx, deployment.Name) {
				verdict := site.Judge(history.Of(config.Status.NodeRef.Name), "infra", t.Pools(ctx))
				Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
			}
		}
	}
	// boots returns how often each host of the MachineDeployment was booted.
	boots := func(ctx context.Context) map[string]int {
		all := map[string]int{}
		for _, config := range t.Configs(ctx, deployment.Name) {
			name := config.Status.HostRef.Name
			for _, event := range lab.Hardware.Host(name).Events() {
				if event.Step == baremetal.UnitsStarted {
					all[name]++
				}
			}
		}
		return all
	}
	getPool := func(ctx context.Context) *poolv1.MachineConfigPool {
		GinkgoHelper()
		pool := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
		return pool
	}
	// consoleOfBoot returns the console of the host that boots.
	consoleOfBoot := func(ctx context.Context) (string, error) {
		for _, config := range t.Configs(ctx, deployment.Name) {
			if host := lab.Hardware.Host(config.Status.HostRef.Name); host != nil && !conditions.IsTrue(&config, bootstrapv1.NodeInPoolCondition) {
				return host.Console()
			}
		}
		return "", nil
	}
	waitForPods := func(ctx context.Context) {
		GinkgoHelper()
		c, err := client.New(cluster.Config, client.Options{Scheme: clusterapi.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			var list appsv1.DeploymentList
			g.Expect(c.List(ctx, &list, client.InNamespace(poolbootNamespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(2))
			for _, d := range list.Items {
				g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
				g.Expect(d.Status).To(And(HaveField("UpdatedReplicas", *d.Spec.Replicas), HaveField("AvailableReplicas", *d.Spec.Replicas),
					HaveField("Replicas", *d.Spec.Replicas)), d.Name)
			}
		}).Should(Succeed())
	}

	BeforeAll(func(ctx SpecContext) {
		start := time.Now()
		runInShell(ctx, GinkgoT().TempDir(), commandsOf("Install", 1))
		waitForPods(ctx)
		AddReportEntry("from clusterctl init to ready Pods", time.Since(start))
		lab = tenant.StartSite(ctx, site.Options{Installed: cluster, Agents: true, Consoles: GinkgoWriter})
		watching, end := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(end)
		var err error
		history, err = site.RecordNodes(watching, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t = tenant.New(ctx, lab, 7)
		deployment = t.Deploy(ctx, tenant.Deployment{Name: "infra", Labels: infraLabels})
	}, NodeTimeout(5*time.Minute))

	It("boots the hosts of the first cluster in docs/install.md into their pools", func(ctx SpecContext) {
		start := time.Now()
		dir := GinkgoT().TempDir()
		namespace, rest, found := strings.Cut(commandsOf("The first cluster", 1), "\n\n")
		Expect(found).To(BeTrue())
		runInShell(ctx, dir, namespace)
		first := tenant.Of(lab, "edge")
		first.AddHosts(ctx, 5)
		// The hosts boot workers only. The control plane runs elsewhere, with the CA that it has.
		Expect(clusterapi.CreateClusterCA(ctx, lab.ManagementClient, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "edge"}}, lab.Workload)).To(Succeed())
		Expect(kubeadm.Init(ctx, lab.Workload, "abcdef.0123456789abcdef")).To(Succeed())
		address, port, _ := strings.Cut(lab.Workload.Endpoint, ":")
		runInShell(ctx, dir, replace(rest, map[string]any{
			"192.0.2.10":                             address + " CLUSTER_APIENDPOINT_PORT=" + port,
			"http://images.example.com/worker.qcow2": site.KubeadmImageURL,
			"out/bootstrap-poolboot/v0.1.0":          filepath.Dir(archiveOf(firstRelease)),
			"--control-plane-machine-count 3":        "--control-plane-machine-count 1",
			// The kernel is that of this machine.
			"> edge.yaml\n": "| sed 's/type: Kubeadm$/&\\n        kubeadm: {ignorePreflightErrors: [SystemVerification]}/' > edge.yaml\n",
		}))
		for _, role := range []string{"worker", "infra"} {
			Eventually(ctx, func(g Gomega) {
				configs := first.Configs(ctx, "edge-"+role)
				g.Expect(configs).To(HaveLen(2))
				for _, config := range configs {
					g.Expect(conditions.IsTrue(&config, bootstrapv1.NodeInPoolCondition)).To(BeTrue(), config.Name)
				}
			}).WithTimeout(3 * time.Minute).Should(Succeed())
		}
		AddReportEntry("four hosts of the first cluster", time.Since(start))
	}, SpecTimeout(5*time.Minute))

	It("is installed once, whatever the number of clusterctl init", func(ctx SpecContext) {
		find := func() map[string]types.UID {
			GinkgoHelper()
			var list appsv1.DeploymentList
			Expect(lab.ManagementClient.List(ctx, &list)).To(Succeed())
			found := map[string]types.UID{}
			for _, d := range list.Items {
				found[d.Namespace+"/"+d.Name] = d.UID
			}
			return found
		}
		before := find()
		Expect(before).To(HaveKey(poolbootNamespace + "/poolboot-config-server"))
		_, _, err := cli.Run(ctx, cluster.Kubeconfig, "init", "--bootstrap=poolboot")
		Expect(err).NotTo(HaveOccurred())
		Expect(find()).To(Equal(before))
		_, _, err = cli.Run(ctx, cluster.Kubeconfig, "init", "--bootstrap=poolboot", "--target-namespace=other")
		Expect(err).To(MatchError(ContainSubstring("there is already an instance of the \"bootstrap-poolboot\" provider")))
	}, SpecTimeout(time.Minute))

	It("boots hosts straight into their pool", func(ctx SpecContext) {
		start := time.Now()
		scaleTo(ctx, 1)()
		AddReportEntry("a host from its Machine to its pool", time.Since(start))
		output, _, err := cli.Run(ctx, cluster.Kubeconfig, "describe", "cluster", t.Namespace, "--namespace="+t.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(ContainSubstring("MachineDeployment " + t.Namespace + "/infra"))
	}, SpecTimeout(3*time.Minute))

	It("boots hosts while each of its Pods is killed and each Node is drained", func(ctx SpecContext) {
		waitForHosts := scaleTo(ctx, 3)
		for _, node := range cluster.Nodes {
			for _, program := range []string{"manager", "config-server"} {
				// A Node need not have one. Programs of others have other paths.
				_, _ = node.Run(ctx, "pkill", "-KILL", "--full", "^/"+program+" ")
			}
			_, err := lab.Kubectl(ctx, cluster.ControlPlane, "drain", node.Name(), "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
			Expect(err).NotTo(HaveOccurred())
			_, err = lab.Kubectl(ctx, cluster.ControlPlane, "uncordon", node.Name())
			Expect(err).NotTo(HaveOccurred())
		}
		waitForHosts()
		waitForPods(ctx)
		Expect(boots(ctx)).To(HaveEach(1))
	}, SpecTimeout(5*time.Minute))

	It("accepts only the connections that its NetworkPolicies allow", func(ctx SpecContext) {
		var list corev1.PodList
		Expect(lab.ManagementClient.List(ctx, &list)).To(Succeed())
		find := func(namespace, name string) *corev1.Pod {
			GinkgoHelper()
			i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Namespace == namespace && strings.HasPrefix(p.Name, name) })
			Expect(i).To(BeNumerically(">=", 0), name)
			return &list.Items[i]
		}
		other, server, manager := find("capi-system", ""), find(poolbootNamespace, "poolboot-config-server"), find(poolbootNamespace, "poolboot-controller-manager")
		workload := strings.Split(lab.Workload.Endpoint, ":")
		for _, try := range []struct {
			from    *corev1.Pod
			address string
			port    any
			open    bool
		}{
			{other, server.Status.PodIP, 9444, true},
			{other, server.Status.PodIP, 8080, false}, // metrics
			{other, manager.Status.PodIP, 9443, true},
			{other, manager.Status.PodIP, 8443, false}, // metrics
			{server, workload[0], workload[1], false},
			{manager, workload[0], workload[1], true},
		} {
			Expect(connects(ctx, try.from, try.address, try.port)).To(Equal(try.open), "from %s to %s:%v", try.from.Name, try.address, try.port)
		}
		_, err := lab.Kubectl(ctx, cluster.ControlPlane, "label", "namespace", "capi-system", "metrics=enabled")
		Expect(err).NotTo(HaveOccurred())
		for address, port := range map[string]int{server.Status.PodIP: 8080, manager.Status.PodIP: 8443} {
			Eventually(ctx, connects).WithArguments(ctx, other, address, port).Should(BeTrue())
		}
	}, SpecTimeout(5*time.Minute))

	It("keeps hosts, pools and tokens when an upgrade is killed, its images are missing, and it is rolled back", func(ctx SpecContext) {
		Expect(buildRelease(ctx, sourcetree.Path(), nextRelease)).To(Succeed())
		start, before := time.Now(), boots(ctx)
		var nodes []string
		for _, config := range t.Configs(ctx, deployment.Name) {
			nodes = append(nodes, config.Status.NodeRef.Name)
		}
		moveServer(ctx, "del") // the host boots as long as this lasts
		waitForHosts := scaleTo(ctx, 4)
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, deployment.Name) }).Should(And(
			HaveLen(4), HaveEach(HaveField("Status.HostRef.Name", Not(BeEmpty())))))
		kept := func() map[string]any {
			all := map[string]any{}
			for _, pool := range t.Pools(ctx) {
				all[pool.Name] = pool.UID
			}
			for _, config := range t.Configs(ctx, deployment.Name) {
				all[config.Name] = t.Pointer(ctx, &config) // with the token and the CA
			}
			return all
		}
		first := kept()

		interrupted, kill := context.WithCancel(ctx)
		defer kill()
		ended := make(chan error, 1)
		go func() { ended <- upgradeTo(interrupted, nextRelease, 120) }()
		manager := client.ObjectKey{Namespace: poolbootNamespace, Name: "poolboot-controller-manager"}
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, manager, &appsv1.Deployment{}) }).
			WithPolling(20 * time.Millisecond).Should(Satisfy(apierrors.IsNotFound))
		kill()
		Eventually(ended).Should(Receive(HaveOccurred()))
		Expect(upgradeTo(ctx, nextRelease, 5)).NotTo(Succeed(), "the Nodes do not have the images")
		Eventually(ctx, func() (string, error) {
			return lab.Kubectl(ctx, cluster.ControlPlane, "get", "pods", "--namespace="+poolbootNamespace)
		}).Should(MatchRegexp("poolboot-controller-manager.* 0/1 +(ErrImagePull|ImagePullBackOff)"))
		status, err := plugin(ctx, "rollout", "status", "infra", "-n", t.Namespace)
		Expect(err).NotTo(HaveOccurred(), status)
		Expect(status).To(ContainSubstring("3 of 4 hosts run"), "one is to boot")
		for host := range before {
			active, err := lab.Hardware.Host(host).Run(ctx, "systemctl", "is-active", ignition.AgentUnit)
			Expect(active, err).To(Equal("active\n"))
		}
		Expect(site.MostAway(history.Versions(), start, nodes...)).To(BeZero())

		Expect(upgradeTo(ctx, firstRelease, 120)).To(Succeed())
		moveServer(ctx, "add")
		waitForHosts()
		waitForPods(ctx)
		Expect(kept()).To(Equal(first))
		Expect(boots(ctx)).To(And(HaveLen(4), HaveEach(1)))
	}, SpecTimeout(5*time.Minute))

	It("is upgraded while hosts boot and a rollout runs", func(ctx SpecContext) {
		Expect(cluster.LoadImages(ctx, archiveOf(nextRelease))).To(Succeed())
		plan, _, err := cli.Run(ctx, cluster.Kubeconfig, "upgrade", "plan")
		Expect(err).NotTo(HaveOccurred())
		Expect(plan).To(MatchRegexp(`bootstrap-poolboot .* ` + firstRelease + ` +` + nextRelease))
		before := boots(ctx)
		start := time.Now()
		gap := watchServer(ctx)
		waitForHosts := scaleTo(ctx, 5)
		reboots := t.MachineConfig("52-reboots", "infra", "/etc/reboots", "yes")
		t.Create(ctx, reboots)
		Expect(upgradeTo(ctx, nextRelease, 120)).To(Succeed())
		AddReportEntry("clusterctl upgrade apply", time.Since(start))
		killLeader(ctx, lab.ManagementClient)
		Expect(getPool(ctx).Status.UpdatedHostCount).NotTo(gstruct.PointTo(BeEquivalentTo(5)), "the rollout still runs")
		waitForHosts()
		waitForPods(ctx)
		five := gstruct.PointTo(BeEquivalentTo(5))
		Eventually(ctx, getPool).WithTimeout(4 * time.Minute).Should(HaveField("Status", And(HaveField("HostCount", five),
			HaveField("UpdatedHostCount", five), HaveField("ReadyHostCount", five))))
		AddReportEntry("the upgrade, the boots and the rollout", time.Since(start))
		AddReportEntry("longest time without a config server", gap())
		var nodes []string
		for _, config := range t.Configs(ctx, deployment.Name) {
			nodes = append(nodes, config.Status.NodeRef.Name)
			content, err := lab.Hardware.Host(config.Status.HostRef.Name).ReadFile("/etc/reboots")
			Expect(string(content), err).To(Equal("yes"))
		}
		after := boots(ctx)
		for host := range before {
			Expect(after[host]).To(Equal(before[host]+1), "the rollout reboots each host, and the upgrade none")
		}
		Expect(site.MostAway(history.Versions(), start, nodes[:len(before)]...)).To(Equal(1), "maxUnavailable")
		Eventually(ctx, func(g Gomega) {
			var crds apiextensionsv1.CustomResourceDefinitionList
			g.Expect(lab.ManagementClient.List(ctx, &crds, client.MatchingLabels{clusterv1.ProviderNameLabel: "bootstrap-poolboot"})).To(Succeed())
			g.Expect(crds.Items).To(HaveLen(5))
			for _, crd := range crds.Items {
				g.Expect(crd.Status.StoredVersions).To(Equal([]string{"v1alpha1"}), crd.Name)
				g.Expect(crd.Annotations).To(HaveKeyWithValue(clusterv1.CRDMigrationObservedGenerationAnnotation, fmt.Sprint(crd.Generation)), crd.Name)
			}
		}).Should(Succeed(), "the next upgrade can start")
	}, SpecTimeout(8*time.Minute))

	It("says which URL a host cannot reach, and the host continues when it can", func(ctx SpecContext) {
		moveServer(ctx, "del")
		waitForHosts := scaleTo(ctx, 6)
		url := "https://" + cluster.ServiceAddress() + ":9444"
		Eventually(ctx, func() (string, error) { return plugin(ctx, "boots", "-n", t.Namespace, "-o", "json") }).
			Should(MatchRegexp("host [^ ]+ was chosen and has not requested its configuration from " + url + " yet: .* check on its console that .* can connect to this URL"))
		Eventually(ctx, consoleOfBoot).Should(MatchRegexp("no route to host|timeout"))
		moveServer(ctx, "add")
		waitForHosts()
	}, SpecTimeout(2*time.Minute))

	It("boots a host after the certificate of the config server has expired and cert-manager has renewed it", func(ctx SpecContext) {
		certManager := func(replicas string) {
			GinkgoHelper()
			_, err := lab.Kubectl(ctx, cluster.ControlPlane, "scale", "deployment", "cert-manager", "--namespace=cert-manager", "--replicas="+replicas)
			Expect(err).NotTo(HaveOccurred())
		}
		_, restarts := configServers(ctx, lab)
		certManager("0")
		Eventually(ctx, func() (string, error) {
			return lab.Kubectl(ctx, cluster.ControlPlane, "get", "pods", "--namespace=cert-manager", "-o", "name")
		}).Should(BeEmpty())
		expireCertificate(ctx, lab.ManagementClient)
		waitForCertificates(ctx, lab, false)
		waitForHosts := scaleTo(ctx, 7)
		Eventually(ctx, consoleOfBoot).Should(MatchRegexp("certificate has expired|connection refused"))
		certManager("1")
		waitForCertificates(ctx, lab, true)
		waitForHosts()
		waitForPods(ctx)
		_, after := configServers(ctx, lab)
		Expect(after).To(Equal(restarts))
	}, SpecTimeout(3*time.Minute))

	It("is removed with its kinds when nothing uses them, and installed again", func(ctx SpecContext) {
		_, _, err := cli.Run(ctx, cluster.Kubeconfig, "delete", "--bootstrap=poolboot", "--include-crd")
		Expect(err).To(MatchError(ContainSubstring("Please delete these objects first")))
		scaleTo(ctx, 0)
		_, err = lab.Kubectl(ctx, cluster.ControlPlane, "delete", "cluster", "edge", "--namespace=edge")
		Expect(err).NotTo(HaveOccurred())
		for _, namespace := range []string{t.Namespace, "edge"} {
			Eventually(ctx, func() (string, error) {
				return lab.Kubectl(ctx, cluster.ControlPlane, "get", "poolbootconfigs", "-o", "name", "--namespace="+namespace)
			}).WithTimeout(2 * time.Minute).Should(BeEmpty())
			_, err = lab.Kubectl(ctx, cluster.ControlPlane, "delete", "--namespace="+namespace, "--all", "machineconfigpools,machineconfigs,poolbootconfigtemplates")
			Expect(err).NotTo(HaveOccurred())
		}
		_, _, err = cli.Run(ctx, cluster.Kubeconfig, "delete", "--bootstrap=poolboot", "--include-crd")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func() error { return lab.ManagementClient.List(ctx, &poolv1.MachineConfigPoolList{}) }).Should(HaveOccurred())
		_, _, err = cli.Run(ctx, cluster.Kubeconfig, "init", "--bootstrap=poolboot:"+nextRelease)
		Expect(err).NotTo(HaveOccurred())
		waitForPods(ctx)
	}, SpecTimeout(5*time.Minute))
})
