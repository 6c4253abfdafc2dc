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
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("the images", func() {
	DescribeTable("have only their program and the agents of hosts, run it as an unprivileged user, and have the name in the Deployment",
		func(ctx SpecContext, program, deployment string) {
			archive, container := readTar(filepath.Join(releaseDir, "images.tar")), newPod(deployment).Spec.Containers[0]
			var list, image ociIndex
			readBlob(archive, "index.json", &list)
			for _, entry := range list.Manifests {
				if entry.Annotations["io.containerd.image.name"] == container.Image {
					Expect(entry.Annotations).To(HaveKeyWithValue("org.opencontainers.image.ref.name", container.Image))
					readBlob(archive, entry.path(), &image)
				}
			}
			Expect(image.Manifests).To(HaveLen(1), "an image for each architecture of the release")
			Expect(image.Manifests[0].Platform).To(Equal(ociPlatform{OS: "linux", Architecture: runtime.GOARCH}))
			var manifest struct {
				Config ociDescriptor
				Layers []ociDescriptor
			}
			readBlob(archive, image.Manifests[0].path(), &manifest)
			var config struct {
				ociPlatform
				Config struct {
					User       string
					Entrypoint []string
				} `json:"config"`
			}
			readBlob(archive, manifest.Config.path(), &config)
			Expect(config.ociPlatform).To(Equal(image.Manifests[0].Platform))
			Expect(config.Config.Entrypoint).To(Equal(container.Command))
			Expect(config.Config.User).To(Equal("65532:65532"))

			inside, out := map[string][]byte{}, GinkgoT().TempDir()
			for i, layer := range manifest.Layers {
				path := filepath.Join(out, fmt.Sprintf("%s-%d.tar.gz", program, i))
				Expect(os.WriteFile(path, archive[layer.path()], 0o600)).To(Succeed())
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

	It("are those that images.txt lists", func() {
		Expect(os.ReadFile(filepath.Join(releaseDir, "images.txt"))).To(WithTransform(func(list []byte) []string { return strings.Fields(string(list)) }, ConsistOf(components.Images())))
	})
})

// These are parts of an archive of the OCI image layout.
type (
	ociIndex struct{ Manifests []ociDescriptor }

	ociDescriptor struct {
		Digest      string
		Platform    ociPlatform
		Annotations map[string]string
	}

	ociPlatform struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	}
)

// path returns the path of the content in the archive.
func (d ociDescriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

func readBlob(archive map[string][]byte, path string, into any) {
	GinkgoHelper()
	Expect(archive).To(HaveKey(path))
	Expect(json.Unmarshal(archive[path], into)).To(Succeed())
}

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
