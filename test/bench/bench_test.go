// Package bench measures what Poolboot does most: rendering a pool, making a machine's overlay, and serving both to hosts.
// Every figure comes with a peer that was measured in the same run on the same machine, so that the ratio ("x-peer":
// time of ours over time of the peer's, less is better) says more than the time.
package bench

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

const (
	// machineConfigs and totalSize are the size of the pool that is rendered: 200 MachineConfigs, 1 MiB of JSON together.
	machineConfigs = 200
	totalSize      = 1 << 20
	roleLabel      = "role"
)

// sideBySide times ours and the peer's in turn, so that whatever else the machine does hits both, and reports both. It
// returns how long one of ours and one of the peer's took; ns/op is ours.
func sideBySide(b *testing.B, ours, peers func() error) (our, peer time.Duration) {
	b.Helper()
	timed := func(spent *time.Duration, do func() error) {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		*spent += time.Since(start)
	}
	for b.Loop() {
		timed(&our, ours)
		b.StopTimer()
		timed(&peer, peers)
		b.StartTimer()
	}
	b.ReportMetric(float64(peer)/float64(b.N), "peer-ns/op")
	b.ReportMetric(float64(our)/float64(peer), "x-peer")
	return our / time.Duration(b.N), peer / time.Duration(b.N)
}

func pools() []poolv1.MachineConfigPool {
	of := func(role string) poolv1.MachineConfigPool {
		return pool.WithDefaults(poolv1.MachineConfigPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: role},
			Spec: poolv1.MachineConfigPoolSpec{
				ClusterName:           "bench",
				Role:                  role,
				MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{roleLabel: role}},
			},
		})
	}
	return []poolv1.MachineConfigPool{of("worker"), of("infra")}
}

// configs are the MachineConfigs of both pools: three of four are worker's, and infra inherits them. Each writes one file of
// text, in base64, and one unit.
func configs() ([]poolv1.MachineConfig, error) {
	words := rand.New(rand.NewPCG(1, 2))
	out := make([]poolv1.MachineConfig, 0, machineConfigs)
	for i := range machineConfigs {
		role := "worker"
		if i%4 == 3 {
			role = "infra"
		}
		config, err := sized(i, totalSize/machineConfigs, words)
		if err != nil {
			return nil, err
		}
		out = append(out, poolv1.MachineConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("50-bench-%03d", i), Labels: map[string]string{roleLabel: role}},
			Spec:       poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: config}, KernelArguments: []string{fmt.Sprintf("bench.%d=1", i)}},
		})
	}
	return out, nil
}

// sized returns an Ignition config of about size bytes.
func sized(i, size int, words *rand.Rand) ([]byte, error) {
	const frame = 400 // what is around the file's contents
	var text strings.Builder
	for text.Len() < (size-frame)*3/4 {
		fmt.Fprintf(&text, "option_%d = %d\n", words.IntN(100), words.IntN(1_000_000))
	}
	return json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.4.0"},
		"storage": map[string]any{"files": []any{map[string]any{
			"path": fmt.Sprintf("/etc/bench/%03d.conf", i), "mode": 0o644, "overwrite": true,
			"contents": map[string]any{"source": "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte(text.String()))},
		}}},
		"systemd": map[string]any{"units": []any{map[string]any{
			"name": fmt.Sprintf("bench-%03d.service", i), "enabled": true,
			"contents": "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n",
		}}},
	})
}
