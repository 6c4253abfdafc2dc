// Package bench measures Poolboot's most frequent operations: rendering a pool, creating a Machine's overlay, and
// serving both to hosts. Each result has a peer that is measured in the same run on the same machine. The ratio
// "x-peer" is Poolboot's time divided by the peer's: less is better.
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
)

const (
	roleLabel = "role"
)

// load is the amount that a pool renders.
type load struct {
	configs   int // MachineConfigs
	filesEach int // files of each MachineConfig
	bytes     int // of JSON in total
}

// defaultLoad is the load of benchmarks that do not vary the size.
var defaultLoad = load{configs: 200, filesEach: 5, bytes: 1 << 20}

// compareWork is compare for operations that only compute. It enters the ratio of their processor times into the
// ledger, which other load on the machine hardly changes.
func compareWork(b *testing.B, figure string, ours, peers func() error) {
	b.Helper()
	var our, peer time.Duration
	measured := func(spent *time.Duration, do func() error) func() error {
		return func() error {
			start := processorTime(b)
			err := do()
			*spent += processorTime(b) - start
			return err
		}
	}
	compare(b, measured(&our, ours), measured(&peer, peers))
	b.ReportMetric(float64(our)/float64(peer), "cpu-x-peer")
	enter(b, figure, float64(our)/float64(peer))
}

// compare runs Poolboot's operation and the peer's in turn, because other load on the machine then affects both. It
// reports and returns the time per operation of both. ns/op is Poolboot's.
func compare(b *testing.B, ours, peers func() error) (our, peer time.Duration) {
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
		return poolv1.MachineConfigPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: role},
			Spec: poolv1.MachineConfigPoolSpec{
				ClusterName:           "bench",
				PoolRole:              role,
				MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{roleLabel: role}},
			},
		}
	}
	return []poolv1.MachineConfigPool{of("worker"), of("infra")}
}

// make returns the MachineConfigs of both pools. Three of four belong to worker, and infra inherits them. Each has
// files with base64 text, and a unit.
func (l load) make() ([]poolv1.MachineConfig, error) {
	words := rand.New(rand.NewPCG(1, 2))
	out := make([]poolv1.MachineConfig, 0, l.configs)
	for i := range l.configs {
		role := "worker"
		if i%4 == 3 {
			role = "infra"
		}
		config, err := l.config(i, words)
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

// config returns the Ignition of a MachineConfig.
func (l load) config(i int, words *rand.Rand) ([]byte, error) {
	const unit, frame = 250, 150 // the size of the unit, and of the JSON around a file's contents
	files := make([]any, 0, l.filesEach)
	for j := range l.filesEach {
		var text strings.Builder
		for text.Len() < ((l.bytes/l.configs-unit)/l.filesEach-frame)*3/4 {
			fmt.Fprintf(&text, "option_%d = %d\n", words.IntN(100), words.IntN(1_000_000))
		}
		files = append(files, map[string]any{
			"path": fmt.Sprintf("/etc/bench/%03d-%d.conf", i, j), "mode": 0o644, "overwrite": true,
			"contents": map[string]any{"source": "data:text/plain;base64," + base64.StdEncoding.EncodeToString([]byte(text.String()))},
		})
	}
	return json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.4.0"},
		"storage":  map[string]any{"files": files},
		"systemd": map[string]any{"units": []any{map[string]any{
			"name": fmt.Sprintf("bench-%03d.service", i), "enabled": true,
			"contents": "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n",
		}}},
	})
}
