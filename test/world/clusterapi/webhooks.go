package clusterapi

import (
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field manager of this package.
const fieldOwner = client.FieldOwner("poolboot-test")

// InstallWebhooks installs webhook configurations that point at a server on loopback instead of a Service. url is the
// server's URL, https://host:port, without the webhook's path. ca is the PEM certificate of its authority. The API
// server can take a second to call them.
func InstallWebhooks(ctx context.Context, cfg *rest.Config, configurations []unstructured.Unstructured, url string, ca []byte) error {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := pointTo(&configuration, url, ca); err != nil {
			return fmt.Errorf("%s %s: %w", configuration.GetKind(), configuration.GetName(), err)
		}
		applied := client.ApplyConfigurationFromUnstructured(&configuration)
		if err := c.Apply(ctx, applied, fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", configuration.GetKind(), configuration.GetName(), err)
		}
	}
	return nil
}

// pointTo replaces the Service of all webhooks of a configuration with a URL.
func pointTo(configuration *unstructured.Unstructured, url string, ca []byte) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, webhook := range webhooks {
		webhook, ok := webhook.(map[string]any)
		if !ok {
			return fmt.Errorf("%s %s: a webhook is not an object", configuration.GetKind(), configuration.GetName())
		}
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("webhook %v: clientConfig.service.path is missing", webhook["name"])
		}
		webhook["clientConfig"] = map[string]any{
			"url":      url + path,
			"caBundle": base64.StdEncoding.EncodeToString(ca),
		}
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}
