package site

import (
	"context"
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WithoutControllers stops Poolboot's manager, Metal3 and Cluster API's core, and removes their webhooks. It calls do,
// and starts all of them again. They then find what do wrote as they find the objects of a restored backup.
func (s *Site) WithoutControllers(ctx context.Context, do func() error) error {
	if err := errors.Join(s.Manager.Stop(), s.simulator.Stop(), s.core.Stop()); err != nil {
		return err
	}
	webhooks, err := s.removeWebhooks(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if err := s.Manager.Start(ctx); err != nil {
		return err
	}
	for _, webhook := range webhooks {
		webhook.SetResourceVersion("")
		if err := s.ManagementClient.Create(ctx, webhook); err != nil {
			return err
		}
	}
	// Cluster API writes every Machine when it starts: before it does, the other caches are filled in seconds.
	running := context.WithoutCancel(ctx) // the next specs need them too
	if err := s.StartMetal3(running); err != nil {
		return err
	}
	return errors.Join(s.startCore(running), s.waitForWebhooks(ctx))
}

// removeWebhooks deletes all webhook configurations, and returns them.
func (s *Site) removeWebhooks(ctx context.Context) (webhooks []client.Object, err error) {
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := errors.Join(s.ManagementClient.List(ctx, &mutating), s.ManagementClient.List(ctx, &validating)); err != nil {
		return nil, err
	}
	for i := range mutating.Items {
		webhooks = append(webhooks, &mutating.Items[i])
	}
	for i := range validating.Items {
		webhooks = append(webhooks, &validating.Items[i])
	}
	for _, webhook := range webhooks {
		if err := s.ManagementClient.Delete(ctx, webhook); err != nil {
			return nil, err
		}
	}
	return webhooks, nil
}
