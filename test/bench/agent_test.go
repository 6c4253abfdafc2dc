package bench

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// maxPackedAgent is how many bytes a host may download for its agent.
const maxPackedAgent = 8_000_000

// BenchmarkAgentSize builds the agents of a release, and compresses them as the config server does. It fails if one is
// too large.
func BenchmarkAgentSize(b *testing.B) {
	for _, architecture := range []string{"amd64", "arm64"} {
		b.Run(architecture, func(b *testing.B) {
			agents := b.TempDir()
			make := exec.Command("make", "-C", sourcetree.Path(), "build-agent", "AGENTS="+agents, "AGENT_ARCHITECTURES="+architecture, "AGENT_FLAGS=-trimpath")
			if output, err := make.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, output)
			}
			program, err := os.ReadFile(filepath.Join(agents, "poolboot-agent-"+architecture))
			if err != nil {
				b.Fatal(err)
			}
			var packed bytes.Buffer
			for b.Loop() {
				packed.Reset()
				w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := w.Write(program); err != nil {
					b.Fatal(err)
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(program))/1e6, "MB")
			b.ReportMetric(float64(packed.Len())/1e6, "packed-MB")
			if packed.Len() > maxPackedAgent {
				b.Errorf("the packed agent has %d bytes: more than %d", packed.Len(), maxPackedAgent)
			}
		})
	}
}
