package install_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var _ = Describe("the images", Ordered, func() {
	var out string

	BeforeAll(func(ctx SpecContext) {
		out = GinkgoT().TempDir()
		output, err := exec.CommandContext(ctx, "make", "-C", sourcetree.Path(), "images", "VERSION="+releaseVersion, "REGISTRY="+registry,
			"OUT="+out, "ARCHITECTURES="+runtime.GOARCH).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", output)
	})

	DescribeTable("have only their program and the agents of hosts, run it as an unprivileged user, and have the name in the Deployment",
		func(ctx SpecContext, program, deployment string) {
			var manifest []struct {
				Config           string
				RepoTags, Layers []string
			}
			var config struct {
				OS           string `json:"os"`
				Architecture string `json:"architecture"`
				Config       struct {
					User       string
					Entrypoint []string
				} `json:"config"`
			}
			files := readTar(filepath.Join(out, "images", program+"-"+runtime.GOARCH+".tar"))
			Expect(json.Unmarshal(files["manifest.json"], &manifest)).To(Succeed())
			Expect(manifest).To(HaveLen(1))
			Expect(json.Unmarshal(files[manifest[0].Config], &config)).To(Succeed())
			container := newPod(deployment).Spec.Containers[0]
			Expect(manifest[0].RepoTags).To(Equal([]string{container.Image}))
			Expect(config.OS + "/" + config.Architecture).To(Equal("linux/" + runtime.GOARCH))
			Expect(config.Config.Entrypoint).To(Equal(container.Command))
			Expect(config.Config.User).To(Equal("65532:65532"))

			inside := map[string][]byte{}
			for i, layer := range manifest[0].Layers {
				path := filepath.Join(out, fmt.Sprintf("%s-%d.tar.gz", program, i))
				Expect(os.WriteFile(path, files[layer], 0o600)).To(Succeed())
				maps.Copy(inside, readTar(path))
			}
			Expect(inside).To(And(HaveLen(3), HaveKey(program), HaveKey("agents/poolboot-agent-amd64"), HaveKey("agents/poolboot-agent-arm64")))
			for _, architecture := range []string{"amd64", "arm64"} {
				Expect(packedSize(inside["agents/poolboot-agent-"+architecture])).To(BeNumerically("<=", maxPackedAgent), architecture)
			}
			Expect(container.Args).To(ContainElement("--agent-directory=/agents"))
			copied := filepath.Join(out, program)
			Expect(os.WriteFile(copied, inside[program], 0o700)).To(Succeed())
			Expect(exec.CommandContext(ctx, copied, "--version").Output()).To(ContainSubstring(releaseVersion))
		},
		Entry(nil, "manager", "poolboot-controller-manager"),
		Entry(nil, "config-server", "poolboot-config-server"),
	)
})

// maxPackedAgent is how many bytes a host may download for its agent.
const maxPackedAgent = 8_000_000

// packedSize returns the size of a program as the config server compresses it.
func packedSize(program []byte) int {
	GinkgoHelper()
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	Expect(err).NotTo(HaveOccurred())
	_, err = w.Write(program)
	Expect(err).NotTo(HaveOccurred())
	Expect(w.Close()).To(Succeed())
	return packed.Len()
}

// readTar returns the files of a tar or tar.gz archive.
func readTar(path string) map[string][]byte {
	GinkgoHelper()
	file, err := os.Open(path)
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	var stream io.Reader = file
	if filepath.Ext(path) == ".gz" {
		stream, err = gzip.NewReader(file)
		Expect(err).NotTo(HaveOccurred())
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		files[header.Name], err = io.ReadAll(archive)
		Expect(err).NotTo(HaveOccurred())
	}
}
