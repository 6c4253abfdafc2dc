package update

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

var _ = Describe("The end of an update", func() {
	It("is counted, and not what is wrong with a host at other times", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		counted := func() []float64 {
			of := func(outcome string) float64 {
				return scrape.Sum(metrics.Registry, "poolboot_updates_total", map[string]string{"cluster": clusterKey.String(), "outcome": outcome})
			}
			return []float64{of("Started"), of("Done"), of("Degraded")}
		}
		before := counted()
		for _, drift := range []string{"/etc/chrony.conf: Content", ""} {
			w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.DriftAnnotation] = drift })
			w.settle(ctx)
		}
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.eventsOf(bootstrapv1.UpdateDegradedReason)).To(HaveLen(1))
		Expect(counted()).To(Equal(before))
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-3"), "")
		w.settle(ctx)
		Expect(counted()).To(Equal([]float64{before[0] + 2, before[1] + 1, before[2] + 1}))
	})

	It("is counted once, also if the Node can't be uncordoned at first", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		degraded := func() float64 {
			return scrape.Sum(metrics.Registry, "poolboot_updates_total", map[string]string{"cluster": clusterKey.String(), "outcome": "Degraded"})
		}
		before, connected := degraded(), w.reconciler.ClusterCache
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "")
		refuseNodes(w)
		_, err := w.reconcileHost(ctx, 0)
		Expect(err).To(MatchError(ContainSubstring("the owner of the cluster refuses it")))
		w.reconciler.ClusterCache = connected
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))
		Expect(degraded()).To(Equal(before + 1))
	})

	labels := map[string]string{"role": "worker"}
	// rolledOut returns a world whose host is told to run a MachineConfig with this Ignition, and the rendered config.
	rolledOut := func(ctx SpecContext, ignition string) (w *world, web *poolv1.MachineConfig, rendered string) {
		GinkgoHelper()
		w = newWorld(1)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: labels}
		})
		web = &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "50-web", Generation: 1, Labels: labels}}
		web.Spec.Config = &runtime.RawExtension{Raw: []byte(ignition)}
		Expect(w.management.Create(ctx, web)).To(Succeed())
		p := &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
		r, err := pool.Render(poolv1.RoleWorker, []poolv1.MachineConfigPool{*p}, []poolv1.MachineConfig{*web})
		Expect(err).NotTo(HaveOccurred())
		w.render(ctx, r.Name)
		w.settle(ctx)
		return w, web, r.Name
	}

	It("names the MachineConfig that brought what failed, as long as the pool renders it", func(ctx SpecContext) {
		w, web, rendered := rolledOut(ctx, `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"web.service","contents":"[Unit]"}]}}`)
		w.eventsOf("")
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, rendered), "Restart web.service: exit status 1")
		w.settle(ctx)
		const named = "Restart web.service: exit status 1 (unit web.service comes from MachineConfig 50-web). Correct the configuration"
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring(named))
		Expect(w.eventsOf("Warning Degraded")).To(ConsistOf(ContainSubstring(named)))

		Expect(w.management.Delete(ctx, web)).To(Succeed())
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).To(And(ContainSubstring("Restart web.service: exit status 1. Correct"), Not(ContainSubstring("50-web"))))
	})

	DescribeTable("names the MachineConfig also", func(ctx SpecContext, report func(w *world, told string), want string) {
		w, _, rendered := rolledOut(ctx, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/web"}]},"systemd":{"units":[{"name":"web.service","contents":"[Unit]"}]}}`)
		report(w, revisionOf(0, rendered))
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).To(And(ContainSubstring(want), Not(ContainSubstring("the host can't change to"))))
	},
		Entry("of a file that can't be written, and says only that nothing was changed", func(w *world, told string) {
			w.reports(context.Background(), 0, agentv1.Degraded, told, "update to "+w.config(context.Background(), 0).Status.Update.Desired.Name+": nothing was changed: /etc/web: its file system is read-only: mount it writable")
		}, " failed before it changed anything, so it runs rendered-worker-1: /etc/web: its file system is read-only: mount it writable (file /etc/web comes from MachineConfig 50-web). Correct the configuration"),
		Entry("of an update that is not possible, and the configuration once", func(w *world, told string) {
			w.reports(context.Background(), 0, agentv1.Unreconcilable, told, "the host can't change to "+w.config(context.Background(), 0).Status.Update.Desired.Name+": file /etc/web: it is new")
		}, ": file /etc/web: it is new (file /etc/web comes from MachineConfig 50-web). Correct the configuration"),
		Entry("of a unit that fails after the update", func(w *world, told string) {
			w.reports(context.Background(), 0, agentv1.Done, told, "")
			w.changeNode(context.Background(), 0, func(node *corev1.Node) {
				node.Annotations[agentv1.FailingUnitsAnnotation] = "web.service: it failed: result exit-code"
			})
		}, "journalctl -u web.service) (unit web.service comes from MachineConfig 50-web). "+
			"What fails after an update does not undo it: the host keeps this configuration. Correct the configuration or the host"),
		Entry("of a file that was changed by hand", func(w *world, told string) {
			w.reports(context.Background(), 0, agentv1.Degraded, told, "")
			w.changeNode(context.Background(), 0, func(node *corev1.Node) {
				node.Annotations[agentv1.DriftAnnotation], node.Annotations[agentv1.CurrentAnnotation] = "/etc/web: Content", told
			})
		}, "differs from it: /etc/web: Content (file /etc/web comes from MachineConfig 50-web). Undo the change"),
		Entry("of a file that can't be downloaded", func(w *world, _ string) {
			w.reports(context.Background(), 0, agentv1.Done, w.node(context.Background(), 0).Annotations[agentv1.CurrentAnnotation], "file /etc/web: files.example: not found")
		}, "cannot begin, which it retries: file /etc/web: files.example: not found (file /etc/web comes from MachineConfig 50-web). "+
			"If it lasts, correct the configuration, the host, or what the host downloads from"),
	)

	It("has a message that the API server accepts, whatever the names in the MachineConfig", func(ctx SpecContext) {
		w, _, rendered := rolledOut(ctx, `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"web.service",
			"dropins":[{"name":"`+strings.Repeat("x", 40000)+`.conf","contents":"[Unit]"}]}]}}`)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, rendered), "web.service: file name too long")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("(dropin web.service.d/xxx"))
		Expect(len(w.updated(ctx, 0).Message)).To(BeNumerically("<", 32768))
	})

	It("renders MachineConfigs that are not valid once, and not for each report of a host", func(ctx SpecContext) {
		w, web, rendered := rolledOut(ctx, `{"ignition":{"version":"3.4.0"}}`)
		web.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.9.9"}}`)
		web.Generation++
		Expect(w.management.Update(ctx, web)).To(Succeed())
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, rendered), "/etc/motd: read-only")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))
		Expect(w.reconciler.origins.Len()).To(Equal(1))
	})

	It("is recorded with the time, as every change of the state of a host is", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		for _, state := range []agentv1.State{agentv1.Applying, agentv1.Degraded} {
			config := w.config(ctx, 0)
			config.Status.Update.StateTime = &metav1.Time{Time: time.Now().Add(-time.Hour)}
			Expect(w.management.Status().Update(ctx, config)).To(Succeed())
			w.reports(ctx, 0, state, revisionOf(0, "rendered-worker-2"), "")
			w.settle(ctx)
			Expect(w.config(ctx, 0).Status.Update.StateTime.Time).To(BeTemporally("~", time.Now(), time.Minute), string(state))
		}
		recorded := w.config(ctx, 0).Status.Update.StateTime
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "no space left on device")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("no space left"))
		Expect(w.config(ctx, 0).Status.Update.StateTime).To(Equal(recorded))
	})
})
