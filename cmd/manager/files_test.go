package main

import (
	"crypto/sha512"
	"fmt"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/component-base/version"
)

var _ = Describe("The agents for hosts", func() {
	write := func(directory, name, contents string) {
		GinkgoHelper()
		Expect(os.WriteFile(filepath.Join(directory, name), []byte(contents), 0o600)).To(Succeed())
	}

	It("are the files of the directory, by architecture, with the version of the manager", func() {
		directory := GinkgoT().TempDir()
		write(directory, "poolboot-agent-amd64", "for amd64")
		write(directory, "poolboot-agent-arm64", "for arm64")
		write(directory, "README", "other files do not count")
		o := parse("--agent-directory=" + directory)
		Expect(o.complete()).To(Succeed())
		Expect(o.reconcilers.Agent.SHA512).To(Equal(map[string]string{
			"amd64": fmt.Sprintf("%x", sha512.Sum512([]byte("for amd64"))),
			"arm64": fmt.Sprintf("%x", sha512.Sum512([]byte("for arm64"))),
		}))
		Expect(o.reconcilers.Agent.Version).To(Equal(version.Get().GitVersion))
		Expect(o.reconcilers.Agent.Oldest).To(Equal("v0.1.0"))
	})

	It("can lack an architecture", func() {
		directory := GinkgoT().TempDir()
		write(directory, "poolboot-agent-arm64", "for arm64")
		o := parse("--agent-directory=" + directory)
		Expect(o.complete()).To(Succeed())
		Expect(o.reconcilers.Agent.SHA512).To(And(HaveLen(1), HaveKey("arm64")))
	})

	It("are none without a directory", func() {
		o := parse()
		Expect(o.complete()).To(Succeed())
		Expect(o.reconcilers.Agent.SHA512).To(BeEmpty())
	})

	It("are refused if the directory has none, or a file is empty or cannot be read", func() {
		directory := GinkgoT().TempDir()
		refused := MatchError(And(ContainSubstring("--agent-directory"), ContainSubstring(directory)))
		Expect(parse("--agent-directory=" + directory).complete()).To(refused)
		write(directory, "poolboot-agent-amd64", "")
		Expect(parse("--agent-directory=" + directory).complete()).To(refused)
		Expect(os.Remove(filepath.Join(directory, "poolboot-agent-amd64"))).To(Succeed())
		Expect(os.Mkdir(filepath.Join(directory, "poolboot-agent-amd64"), 0o700)).To(Succeed())
		Expect(parse("--agent-directory=" + directory).complete()).To(MatchError(ContainSubstring("--agent-directory")))
	})
})
