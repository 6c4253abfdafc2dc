package clusterapi

import (
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner owns what this package applies.
const fieldOwner = client.FieldOwner("poolboot-test")

// InstallWebhooks installs webhook configurations, pointed at a server on loopback instead of a Service: url is that
// server's, https://host:port, to which each webhook's path is added; ca is the PEM certificate that vouches for it.
// The API server may take a second to heed them.
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

// pointTo puts a URL in the place of the Service of every webhook of a configuration.
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
