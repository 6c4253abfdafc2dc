package containerimages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestContainerImages(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Container images")
}

// programs are those of a host, and what was called.
type programs struct {
	has   []string
	calls []string
}

func (p *programs) Run(_ context.Context, name string, arguments ...string) ([]byte, error) {
	for _, has := range p.has {
		if has == name {
			p.calls = append(p.calls, name+" "+strings.Join(arguments, " "))
			return nil, nil
		}
	}
	return nil, fmt.Errorf("the host has no program %s: %w", name, exec.ErrNotFound)
}

var _ = Describe("An image", func() {
	const image = "registry.example/tools/agent:1"
	host := func(files ...string) string {
		root := GinkgoT().TempDir()
		for _, name := range files {
			Expect(os.MkdirAll(filepath.Join(root, name), 0o755)).To(Succeed())
		}
		return root
	}

	DescribeTable("is pulled by the runtime of the host", func(has []string, files []string, want, directory string) {
		p := &programs{has: has}
		puller := Puller{Runner: p, Root: host(files...)}
		Expect(puller.Pull(context.Background(), image)).To(Succeed())
		Expect(p.calls).To(Equal([]string{want}))
		Expect(puller.Directory()).To(Equal(directory))
	},
		Entry("containerd, by the CRI", []string{"crictl", "ctr"}, []string{"/run/containerd/containerd.sock", "/var/lib/containerd"},
			"crictl --runtime-endpoint=unix:///run/containerd/containerd.sock --image-endpoint=unix:///run/containerd/containerd.sock pull "+image, "/var/lib/containerd"),
		Entry("CRI-O, by the CRI", []string{"crictl"}, []string{"/run/crio/crio.sock", "/var/lib/containers"},
			"crictl --runtime-endpoint=unix:///run/crio/crio.sock --image-endpoint=unix:///run/crio/crio.sock pull "+image, "/var/lib/containers"),
		Entry("containerd without crictl", []string{"ctr"}, []string{"/run/containerd/containerd.sock", "/etc/containerd/certs.d"},
			"ctr --namespace=k8s.io images pull --hosts-dir=/etc/containerd/certs.d "+image, "/var/lib"),
	)

	DescribeTable("is not pulled", func(has []string, files []string, name, want string) {
		p := &programs{has: has}
		Expect(Puller{Runner: p, Root: host(files...)}.Pull(context.Background(), name)).To(MatchError(ContainSubstring(want)))
		Expect(p.calls).To(BeEmpty())
	},
		Entry("without a runtime", []string{"crictl"}, nil, image, "neither containerd nor CRI-O listens"),
		Entry("without a program", nil, []string{"/run/crio/crio.sock"}, image, "the host has no program crictl"),
		Entry("with the name of an option", []string{"crictl"}, []string{"/run/crio/crio.sock"}, "--config=/etc/x", "it is not the name of an image"),
	)
})
