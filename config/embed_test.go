package config

import (
	"os"
	"testing"
)

func TestCRDsHasEveryFile(t *testing.T) {
	files, err := os.ReadDir("crd/bases")
	if err != nil {
		t.Fatal(err)
	}
	crds := CRDs()
	if len(crds) != len(files) {
		t.Fatalf("CRDs() has %d definitions, and crd/bases has %d files", len(crds), len(files))
	}
	for i, file := range files {
		crd := crds[i]
		if want := crd.Spec.Group + "_" + crd.Spec.Names.Plural + ".yaml"; file.Name() != want {
			t.Errorf("definition %d of CRDs() belongs in %s, and file %d is %s", i, want, i, file.Name())
		}
	}
}

func TestWebhooksIsTheWholeManifest(t *testing.T) {
	webhooks := Webhooks()
	if len(webhooks.Webhooks) != 4 {
		t.Errorf("Webhooks() has %d webhooks, and 4 are registered in controllers/admission", len(webhooks.Webhooks))
	}
	for _, webhook := range webhooks.Webhooks {
		if webhook.ClientConfig.Service == nil || webhook.ClientConfig.Service.Path == nil {
			t.Errorf("webhook %s has no path", webhook.Name)
		}
	}
}
