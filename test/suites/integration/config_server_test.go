package integration

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("The config server", func() {
	It("gives a host's configuration to the host's own token only", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 2)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		t.Deploy(ctx, tenant.Deployment{Name: "plain", Replicas: 1})
		infra, plain := t.Config(ctx, "infra"), t.Config(ctx, "plain")
		waitForConfiguration(ctx, t, infra)
		waitForConfiguration(ctx, t, plain)

		own := t.Pointer(ctx, infra)
		Eventually(ctx, func() (int, error) { code, _, err := getURL(ctx, own, own.URL); return code, err }).Should(Equal(http.StatusOK))
		foreign, wrong, none := own, own, own
		foreign.Token, wrong.Token, none.Token = t.Pointer(ctx, plain).Token, strings.Repeat("A", len(own.Token)), ""
		for what, request := range map[string]func() (int, []byte, error){
			"another machine's token": func() (int, []byte, error) { return getURL(ctx, foreign, own.URL) },
			"a wrong token":           func() (int, []byte, error) { return getURL(ctx, wrong, own.URL) },
			"no token":                func() (int, []byte, error) { return getURL(ctx, none, own.URL) },
		} {
			code, body, err := request()
			Expect(err).NotTo(HaveOccurred(), what)
			Expect(code).To(Equal(http.StatusUnauthorized), what)
			Expect(string(body)).NotTo(ContainSubstring("infratest"), what)
		}
		worker := t.Pool("worker")
		Eventually(ctx, getSources(worker)).ShouldNot(BeEmpty())
		base, _, _ := strings.Cut(own.URL, "/config/")
		code, _, err := getURL(ctx, own, base+"/rendered/"+t.Namespace+"/"+worker.Status.Configuration.Name+
			"?config="+infra.Name+"&pointer="+infra.Annotations[bootstrapv1.PointerIDAnnotation])
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusForbidden), "another pool's configuration")
	})

	It("answers a revoked token with 401, and an unknown Machine with 503", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		own := t.Pointer(ctx, config)
		code, _, err := getURL(ctx, own, own.URL[:strings.LastIndex(own.URL, "/")]+"/00000000-0000-0000-0000-000000000000")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusServiceUnavailable))

		before := config.DeepCopy()
		config.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
		Expect(lab.ManagementClient.Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, func() (int, error) { code, _, err := getURL(ctx, own, own.URL); return code, err }).Should(Equal(http.StatusUnauthorized))
	})

	It("accepts a rotated token, and refuses the previous token", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		old := t.Pointer(ctx, config)
		t.Rotate(ctx, config)
		rotated := t.Pointer(ctx, config)
		Expect(rotated.Token).NotTo(Equal(old.Token))
		for code, pointer := range map[int]ignition.Pointer{http.StatusOK: rotated, http.StatusUnauthorized: old} {
			Eventually(ctx, func() (int, error) { code, _, err := getURL(ctx, pointer, pointer.URL); return code, err }).Should(Equal(code))
		}
		Eventually(ctx, sumManagerMetric(ctx, "poolboot_token_events_total", map[string]string{
			"cluster": t.Namespace + "/" + t.Namespace, "reason": bootstrapv1.EventTokenRotated})).Should(Equal(1.0))
	})

	It("can read Secrets of its own namespace only, with the rules that config/ installs", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		secret := &corev1.Secret{}
		secret.Name = "of-a-user"
		t.Create(ctx, secret)
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(lab.Dir(), "config-server.kubeconfig"))
		Expect(err).NotTo(HaveOccurred())
		server, err := client.New(config, client.Options{Scheme: clusterapi.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{})).To(Satisfy(apierrors.IsForbidden))
		Expect(server.List(ctx, &corev1.SecretList{})).To(Satisfy(apierrors.IsForbidden))
		Expect(server.List(ctx, &corev1.SecretList{}, client.InNamespace("poolboot-system"))).To(Succeed())
		Expect(server.List(ctx, &bootstrapv1.PoolbootConfigList{})).To(Succeed())
	})
})

var _ = Describe("A pool", func() {
	It("renders changes of the worker pool", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		infra, worker := t.Pool("infra"), t.Pool("worker")
		for pool, sources := range map[*poolv1.MachineConfigPool][]string{worker: {"00-worker"}, infra: {"00-worker", "51-infra"}} {
			Eventually(ctx, getSources(pool)).Should(Equal(sources))
		}
		before := map[string]string{"infra": infra.Status.Configuration.Name, "worker": worker.Status.Configuration.Name}
		t.Create(ctx, t.MachineConfig("99-worker", "worker", "/etc/later", "later"))
		for pool, sources := range map[*poolv1.MachineConfigPool][]string{worker: {"00-worker", "99-worker"}, infra: {"00-worker", "99-worker", "51-infra"}} {
			Eventually(ctx, getSources(pool)).Should(Equal(sources))
			Expect(pool.Status.Configuration.Name).NotTo(Equal(before[pool.Name]))
		}
	})

	It("is shown by kubectl get, and explained by kubectl explain", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		Eventually(ctx, getPoolCondition(t.Pool("infra"), poolv1.UpdatedCondition)).Should(HavePrefix("True"))
		table, err := lab.Kubectl(ctx, lab.Management, "get", "pbpool", "--namespace", t.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(strings.Split(table, "\n")[0])).To(Equal([]string{"NAME", "READY", "REASON", "HOSTS", "UPDATED", "DEGRADED", "AGE"}))
		for _, field := range []string{"poolbootconfig.spec.join.kubelet", "machineconfigpool.spec.nodeSelector", "machineconfig.spec.butane", "poolbootconfig.status.boot"} {
			Eventually(ctx, func() (string, error) { return lab.Kubectl(ctx, lab.Management, "explain", field) }).
				Should(And(ContainSubstring("DESCRIPTION"), Not(ContainSubstring("<empty>"))), field)
		}
	})
})

// getSources returns a function that reads the names of the MachineConfigs in a pool's rendered config.
func getSources(pool *poolv1.MachineConfigPool) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil || !pool.Status.Configuration.IsDefined() {
			return nil, err
		}
		var names []string
		for _, source := range pool.Status.Configuration.Source {
			names = append(names, source.Name)
		}
		return names, nil
	}
}
