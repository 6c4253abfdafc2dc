// Package config embeds the manifests that tests install without kustomize, and by which kubectl poolboot validates
// files: the CustomResourceDefinitions and the webhooks.
package config

import (
	"embed"
	"io/fs"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"
)

//go:embed crd/bases/*.yaml webhook/manifests.yaml
var manifests embed.FS

// CRDs returns the CustomResourceDefinitions of all kinds.
func CRDs() []*apiextensionsv1.CustomResourceDefinition {
	files, err := fs.Glob(manifests, "crd/bases/*.yaml")
	utilruntime.Must(err)
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		decode(file, crd)
		crds = append(crds, crd)
	}
	return crds
}

// Webhooks returns the configuration of all webhooks. Its name and its Service have no prefix: config/default adds it.
func Webhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	decode("webhook/manifests.yaml", webhooks)
	return webhooks
}

// decode reads an embedded manifest. It panics on an error, because the manifests are generated and do not change at
// run time.
func decode(file string, object any) {
	content, err := manifests.ReadFile(file)
	utilruntime.Must(err)
	utilruntime.Must(yaml.UnmarshalStrict(content, object))
}
