package main

import (
	"context"
	"regexp"

	ctrl "sigs.k8s.io/controller-runtime"
)

// setupWebhooks registers the webhooks and says that the manager is up once they are.
func setupWebhooks(mgr ctrl.Manager) error {
	started := mgr.GetWebhookServer().StartedChecker()
	if err := mgr.AddReadyzCheck("webhook", started); err != nil {
		return err
	}
	return mgr.AddHealthzCheck("webhook", started)
}

// setupReconcilers registers the reconcilers.
func setupReconcilers(_ context.Context, _ ctrl.Manager, _ *options, _ []*regexp.Regexp) error {
	return nil
}
