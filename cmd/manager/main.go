// Command manager runs Poolboot's reconcilers and webhooks in a management cluster. It only configures and starts them:
// the packages in bootstrap/ decide, and the packages in controllers/ act.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	"sigs.k8s.io/cluster-api/util/apiwarnings"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers"
)

// name is the manager's name in user agents and in its lease.
const name = "poolboot-manager"

func main() {
	var opts options
	fs := pflag.NewFlagSet(name, pflag.ExitOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.AddGoFlagSet(flag.CommandLine) // --kubeconfig
	opts.addFlags(fs)
	showVersion := fs.Bool("version", false, "Print the version and exit.")
	_ = fs.Parse(os.Args[1:]) // ExitOnError

	if *showVersion {
		fmt.Println(name, version.Get().GitVersion, version.Get().GitCommit)
		return
	}
	if err := logsv1.ValidateAndApply(opts.logs, nil); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), &opts); err != nil {
		klog.ErrorS(err, "Could not run the manager")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// run starts the manager, and returns when ctx ends or a part fails.
func run(ctx context.Context, opts *options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	if _, err := opts.reconcilers.ServerCA(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		return err
	}
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(opts.manager)
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = opts.kubeAPIQPS, opts.kubeAPIBurst
	config.UserAgent = fmt.Sprintf("%s/%s", name, version.Get().GitVersion)
	config.WarningHandler = apiwarnings.DefaultHandler(klog.Background().WithName("API Server Warning"))

	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                     scheme,
		Controller:                 ctrlconfig.Controller{CacheSyncTimeout: 5 * time.Minute}, // large sites need more than the default of 2 minutes
		LeaderElection:             opts.leaderElect,
		LeaderElectionID:           name,
		LeaderElectionNamespace:    opts.reconcilers.OverlayNamespace,
		LeaderElectionResourceLock: resourcelock.LeasesResourceLock,
		// The process exits when the manager stops, so nothing runs on without the lease.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &opts.leaderElectLeaseDuration,
		RenewDeadline:                 &opts.leaderElectRenewDeadline,
		RetryPeriod:                   &opts.leaderElectRetryPeriod,
		HealthProbeBindAddress:        opts.healthAddr,
		Metrics:                       *metricsOptions,
		// Only kubeconfig Secrets are cached with their data, and only the cluster cache reads that data.
		Cache:  setup.ManagerCacheOptions(scheme, name, opts.reconcilers.Namespace, opts.syncPeriod),
		Client: setup.ManagerClientOptions(),
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: opts.webhookHost, Port: opts.webhookPort, CertDir: opts.webhookCertDir, TLSOpts: tlsOptions,
		}),
	})
	if err != nil {
		return err
	}
	if err := controllers.SetupWebhooks(mgr); err != nil {
		return err
	}
	if err := controllers.SetupReconcilers(ctx, mgr, &opts.reconcilers); err != nil {
		return err
	}
	klog.InfoS("Starting", "version", version.Get().GitVersion, "commit", version.Get().GitCommit)
	return mgr.Start(ctx)
}
