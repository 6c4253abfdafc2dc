package kubelet_test

import (
	"reflect"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
)

// FuzzParse checks that a section that Parse accepts results in a drop-in that the Kubernetes type accepts, without the
// fields that a pool cannot set. It also checks that each error has a field and a message.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `{"maxPods":500,"systemReserved":{"cpu":"1"},"clusterDNS":["10.0.0.1"]}`, `{"maxPods":5,"maxPods":6}`,
		`{"kind":"KubeletConfiguration","logging":{"flushFrequency":"5s"}}`, `{"providerID":"a"}`, `{"reservedMemory":[{"numaNode":0,"limits":{"memory":"1Gi"}}]}`,
		`{"cpuManagerPolicy":"static","reservedSystemCPUs":"0,2-3"}`,
		`{"memoryThrottlingFactor":1e-9,"podPidsLimit":9007199254740993}`, `{"featureGates":{"AllAlpha":true},"evictionHard":{"memory.available":"5%"}}`} {
		f.Add([]byte(seed))
		f.Add([]byte(whole(seed)))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		section, errs := kubelet.Parse(raw, at)
		for _, err := range errs {
			if err.Field == "" || err.ErrorBody() == "" {
				t.Fatalf("%#v says nothing", err)
			}
		}
		if len(errs) > 0 {
			return
		}
		for _, err := range append(section.Check(at), section.CheckReservations(at, false)...) {
			if err.Field == "" || err.ErrorBody() == "" {
				t.Fatalf("%#v says nothing", err)
			}
		}
		text, err := section.DropIn("a test")
		if err != nil {
			t.Fatal(err)
		}
		var config kubeletv1beta1.KubeletConfiguration
		if err := yaml.UnmarshalStrict(text, &config); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if config.ProviderID != "" || config.RegisterNode != nil || config.RegisterWithTaints != nil || config.Authentication.X509.ClientCAFile != "" {
			t.Fatalf("%s passed", text)
		}
		if again, err := section.MergeOver(section); err != nil || !reflect.DeepEqual(again, section) && !section.IsEmpty() {
			t.Fatalf("%v over itself is %v: %v", section, again, err)
		}
	})
}
