package bench

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// BenchmarkRender renders a pool of 200 MachineConfigs with 1,000 files and 1 MiB in total. The peer decodes the same
// MachineConfigs from JSON and encodes them.
func BenchmarkRender(b *testing.B) {
	all, err := defaultLoad.make()
	if err != nil {
		b.Fatal(err)
	}
	of := pools()
	size := 0
	for i := range all {
		size += len(all[i].Spec.Config.Raw)
	}
	b.SetBytes(int64(size))
	compareWork(b, "render-ratio", func() error {
		_, err := pool.Render("infra", of, all)
		return err
	}, func() error {
		for i := range all {
			if err := reencode(all[i].Spec.Config.Raw); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkOverlay creates the overlay of a Machine, from its registration to the stored bytes. The peer decodes the
// overlay from JSON and encodes it.
func BenchmarkOverlay(b *testing.B) {
	finished, err := overlay()
	if err != nil {
		b.Fatal(err)
	}
	unpacked, err := finished.Unpack()
	if err != nil {
		b.Fatal(err)
	}
	compareWork(b, "overlay-ratio", func() error {
		_, err := overlay()
		return err
	}, func() error { return reencode(unpacked) })
}

func overlay() (ignition.PackedOverlay, error) {
	of := pools()
	config := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "infra-0", UID: "7d8f3f0a-3a64-4c5c-9c51-2f3f4b1f0001"},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{
			Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet},
			Node: nodev1.NodeSettings{Labels: map[string]string{"example.com/rack": "r1"}},
		}},
	}
	registration, err := registration.Register(registration.Sources{
		NodeName:       "infra-0",
		ProviderID:     "metal3://default/host-0/infra-0",
		HostUID:        "7d8f3f0a-3a64-4c5c-9c51-2f3f4b1f0002",
		Pool:           of[1],
		Pools:          of,
		Config:         config,
		RenderedConfig: "rendered-infra-00000000000000000000000000000000",
	})
	if err != nil {
		return "", err
	}
	made, err := join.Machine{
		Config: config, Registration: registration,
		Cluster: join.Cluster{Name: "bench", Server: "https://192.0.2.1:6443", CA: certificate().Certificate[0]},
	}.Overlay(join.Credential{ID: "abcdef", Secret: "0123456789abcdef", Expires: time.Now().Add(15 * time.Minute)})
	if err != nil {
		return "", err
	}
	return ignition.PackOverlay(made)
}

func reencode(raw []byte) error {
	var content any
	if err := json.Unmarshal(raw, &content); err != nil {
		return err
	}
	_, err := json.Marshal(content)
	return err
}
