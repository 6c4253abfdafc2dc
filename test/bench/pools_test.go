package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/machineconfigpool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
)

// A fleet is 50 pools in a namespace: five Clusters with a worker pool and nine custom pools each. A worker pool
// selects five MachineConfigs with 20 files each, a custom pool three more.
const (
	fleetNamespace  = "default"
	fleetClusters   = 5
	poolsACluster   = 10
	configsOfWorker = 5
	configsOfCustom = 3
	fleetUser       = "pools"

	reconcileTotal = "controller_runtime_reconcile_total"
	controllerName = "machineconfigpool"
)

// BenchmarkMachineConfigChange changes a MachineConfig in a namespace of 50 pools and runs the real reconciler with a
// real API server until all affected pools have their new configuration, and nothing is left to reconcile. ns/op is the
// time to the last pool's configuration. The counts are from the controller's metrics and the API server's audit log.
// "x-needed" is the number of reconciles divided by the number of pools. A pool needs three writes, of its rendered
// config, its status and its history. More writes or renders fail the benchmark. A change that affects no pool and a
// restarted manager need none.
func BenchmarkMachineConfigChange(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	f := startFleet(b)
	for _, change := range []struct {
		name, config string
		concerned    int
	}{
		{"of one custom pool", configName(2, "custom-4", 0), 1},
		{"of a worker pool and the nine that inherit", configName(3, "worker", 0), poolsACluster},
		{"of no pool", "nobodys", 0},
	} {
		b.Run(change.name, func(b *testing.B) {
			before := f.count(b)
			for b.Loop() {
				f.change(b, change.config, change.concerned)
				b.StopTimer()
				f.waitUntilIdle(b)
				b.StartTimer()
			}
			f.report(b, before, change.concerned, 3*change.concerned)
		})
	}
	// A manager renders each pool once after its start, to check that the rendered config exists.
	b.Run("manager that starts again", func(b *testing.B) {
		before := f.count(b)
		for b.Loop() {
			if err := f.running.Stop(); err != nil {
				b.Fatal(err)
			}
			f.start(b)
		}
		f.report(b, before, fleetClusters*poolsACluster, 0)
	})
}

// fleet is the management cluster with the pools and the running manager.
type fleet struct {
	plane   *controlplane.ControlPlane
	admin   client.Client
	running *manager.Running
	cached  client.Client
	changes int
}

func startFleet(b *testing.B) *fleet {
	ctx := context.Background()
	plane, err := controlplane.Start(ctx, controlplane.Options{Name: "fleet", Audit: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := clusterapi.Install(ctx, plane.Config); err != nil {
		b.Fatal(err)
	}
	f := &fleet{plane: plane}
	if f.admin, err = client.New(plane.Config, client.Options{Scheme: clusterapi.Scheme()}); err != nil {
		b.Fatal(err)
	}
	group := errgroup.Group{}
	group.SetLimit(hostsAtOnce)
	for _, object := range fleetObjects(b) {
		group.Go(func() error { return f.admin.Create(ctx, object) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	f.start(b)
	b.Cleanup(func() {
		if err := f.running.Stop(); err != nil {
			b.Error(err)
		}
	})
	return f
}

func fleetObjects(b *testing.B) (objects []client.Object) {
	add := func(cluster int, role string, configs int) {
		key := map[string]string{roleLabel: fmt.Sprintf("%d-%s", cluster, role)}
		objects = append(objects, &poolv1.MachineConfigPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: fmt.Sprintf("%s-%d", role, cluster)},
			Spec: poolv1.MachineConfigPoolSpec{ClusterName: fmt.Sprintf("cluster-%d", cluster), PoolRole: role,
				MachineConfigSelector: &metav1.LabelSelector{MatchLabels: key}},
		})
		all, err := load{configs: configs, filesEach: 20, bytes: configs * 20 << 10}.make()
		if err != nil {
			b.Fatal(err)
		}
		for i := range all {
			all[i].ObjectMeta = metav1.ObjectMeta{Namespace: fleetNamespace, Name: configName(cluster, role, i), Labels: key}
			objects = append(objects, &all[i])
		}
	}
	for cluster := range fleetClusters {
		objects = append(objects, &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: fmt.Sprintf("cluster-%d", cluster)},
			Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}},
		})
		add(cluster, poolv1.RoleWorker, configsOfWorker)
		for custom := range poolsACluster - 1 {
			add(cluster, fmt.Sprintf("custom-%d", custom), configsOfCustom)
		}
	}
	return append(objects, &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "nobodys",
		Labels: map[string]string{roleLabel: "nobody"}}})
}

func configName(cluster int, role string, i int) string {
	return fmt.Sprintf("50-%s-%d-%d", role, cluster, i)
}

// start starts a manager with the pool controller, as a user that differs from the benchmark's in the audit log, and
// waits until it has reconciled all pools.
func (f *fleet) start(b *testing.B) {
	b.Helper()
	before := sumMetric(b, reconcileTotal, controllerName)
	cfg := rest.CopyConfig(f.plane.Config)
	cfg.UserAgent, cfg.QPS, cfg.Burst = fleetUser, -1, 0
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     clusterapi.Scheme(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		b.Fatal(err)
	}
	r := &machineconfigpool.Reconciler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), OverlayNamespace: fleetNamespace, RenderedHistory: 5}
	if err := r.SetupWithManager(context.Background(), mgr, controller.Options{MaxConcurrentReconciles: 10}); err != nil {
		b.Fatal(err)
	}
	if f.running, err = manager.Start(context.Background(), mgr); err != nil {
		b.Fatal(err)
	}
	f.cached = mgr.GetClient()
	f.eventually(b, func() bool { return sumMetric(b, reconcileTotal, controllerName)-before >= fleetClusters*poolsACluster })
	f.waitUntilIdle(b)
}

// change changes the content of a MachineConfig and waits until the given number of pools have a new configuration.
func (f *fleet) change(b *testing.B, name string, concerned int) {
	b.Helper()
	before := f.listConfigurations(b)
	f.changes++
	raw := fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/changed","contents":{"source":"data:,%d-%d"}}]}}`, os.Getpid(), f.changes)
	patch := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: name}}
	changed := patch.DeepCopy()
	changed.Spec.Config = &runtime.RawExtension{Raw: raw}
	if err := f.admin.Patch(context.Background(), changed, client.MergeFrom(patch)); err != nil {
		b.Fatal(err)
	}
	f.eventually(b, func() bool {
		differ := 0
		for pool, configuration := range f.listConfigurations(b) {
			if before[pool] != configuration {
				differ++
			}
		}
		return differ == concerned
	})
}

// listConfigurations returns the names of the pools' rendered configs in the manager's cache.
func (f *fleet) listConfigurations(b *testing.B) map[string]string {
	b.Helper()
	pools := &poolv1.MachineConfigPoolList{}
	if err := f.cached.List(context.Background(), pools, client.InNamespace(fleetNamespace), client.UnsafeDisableDeepCopy); err != nil {
		b.Fatal(err)
	}
	names := map[string]string{}
	for i := range pools.Items {
		names[pools.Items[i].Name] = pools.Items[i].Status.Configuration.Name
	}
	return names
}

// waitUntilIdle waits until all pools have a configuration and the controller has been idle for a while.
func (f *fleet) waitUntilIdle(b *testing.B) {
	b.Helper()
	const quiet = 700 * time.Millisecond
	last, since := -1.0, time.Now()
	f.eventually(b, func() bool {
		now := sumMetric(b, reconcileTotal, controllerName) + sumMetric(b, "workqueue_depth", controllerName)
		if now != last {
			last, since = now, time.Now()
		}
		for _, configuration := range f.listConfigurations(b) {
			if configuration == "" {
				return false
			}
		}
		return time.Since(since) > quiet
	})
}

func (f *fleet) eventually(b *testing.B, done func() bool) {
	b.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			b.Fatal("the pools did not settle within two minutes")
		}
	}
}

// counts are the operations of a controller.
type counts struct{ reconciles, renders, writes, events float64 }

// count returns the counts since the start of the fleet.
func (f *fleet) count(b *testing.B) counts {
	b.Helper()
	requests, err := f.plane.Requests()
	if err != nil {
		b.Fatal(err)
	}
	c := counts{
		reconciles: sumMetric(b, reconcileTotal, controllerName),
		renders:    sumMetric(b, "poolboot_pool_render_seconds", ""),
	}
	for _, r := range requests {
		switch {
		case r.UserAgent != fleetUser, r.Verb == "get", r.Verb == "list", r.Verb == "watch", r.Verb == "delete":
		case r.Object.Resource == "events":
			c.events++
		default:
			c.writes++
		}
	}
	return c
}

// report reports the operations since a count per iteration of the benchmark, in which a number of pools must be
// rendered. It fails if there were more renders or writes. It ignores deletions of old rendered configs.
func (f *fleet) report(b *testing.B, before counts, pools, writes int) {
	b.Helper()
	now, n := f.count(b), float64(b.N)
	each := func(before, now float64, unit string) float64 {
		b.ReportMetric((now-before)/n, unit+"/op")
		return (now - before) / n
	}
	each(before.events, now.events, "events")
	reconciles := each(before.reconciles, now.reconciles, "reconciles")
	rendered, written := each(before.renders, now.renders, "renders"), each(before.writes, now.writes, "writes")
	if pools > 0 {
		b.ReportMetric(reconciles/float64(pools), "x-needed")
	}
	if rendered > float64(pools) || written > float64(writes) || pools == 0 && reconciles > 0 {
		b.Fatalf("%d pools were to be rendered with %d writes: there were %.1f reconciles, %.1f renders, %.1f writes", pools, writes, reconciles, rendered, written)
	}
}

// sumMetric sums a metric of this process over its labels, of one controller or of all.
func sumMetric(b *testing.B, name, controller string) (sum float64) {
	b.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if controller == "" || labeled(m, controller) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func labeled(m *dto.Metric, value string) bool {
	for _, label := range m.GetLabel() {
		if label.GetValue() == value {
			return true
		}
	}
	return false
}
