package service

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/powerloss"
)

var _ = Describe("Another program", func() {
	var directory string
	var tried []string
	var works func(program string) error
	hash := func(contents string) string {
		sum := sha512.Sum512([]byte(contents))
		return hex.EncodeToString(sum[:])
	}
	contents := func(name string) string {
		raw, _ := os.ReadFile(filepath.Join(directory, name))
		return string(raw)
	}
	// running is the program that is at the path now.
	running := func() *Program {
		root, err := os.OpenRoot(directory)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(root.Close)
		return &Program{Root: root, Path: "/bin/agent", Version: "v1.0.0", SHA512: hash(contents("bin/agent")), Try: func(_ context.Context, path string) error {
			info, err := os.Stat(filepath.Join(directory, path))
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o755)))
			tried = append(tried, contents(path))
			return works(contents(path))
		}}
	}
	files := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(directory, "bin"))
		Expect(err).NotTo(HaveOccurred())
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	BeforeEach(func() {
		directory, tried = GinkgoT().TempDir(), nil
		works = func(string) error { return nil }
		Expect(os.MkdirAll(filepath.Join(directory, "bin"), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(directory, "bin/agent"), []byte("old"), 0o755)).To(Succeed())
	})

	It("replaces the running one after it was tried, and is the only one once it works", func() {
		Expect(running().Guard()).To(Succeed())
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(tried).To(Equal([]string{"new"}))
		Expect(contents("bin/agent")).To(Equal("new"))
		Expect(contents("bin/agent.previous")).To(Equal("old"))
		Expect(running().Guard()).To(Succeed())
		Expect(running().prove()).To(Succeed())
		Expect(files()).To(Equal([]string{"agent"}))
	})

	It("that does not work on this host replaces nothing", func() {
		failed := errors.New("exit status 1")
		works = func(program string) error {
			if program == "new" {
				return failed
			}
			return nil
		}
		Expect(running().Replace(context.Background(), []byte("new"))).To(And(MatchError(failed), MatchError(agent.ErrUnusable)))
		Expect(contents("bin/agent")).To(Equal("old"))
		Expect(files()).To(Equal([]string{"agent"}))
	})

	It("is not called unusable while the running one does not pass the check either, as in an outage", func() {
		works = func(string) error { return errors.New("no route to host") }
		err := running().Replace(context.Background(), []byte("new"))
		Expect(err).To(MatchError(ContainSubstring("no route to host")))
		Expect(err).NotTo(MatchError(agent.ErrUnusable))
		Expect(files()).To(Equal([]string{"agent"}))
	})

	It("is not refused for starts of the running one, if the power failed before it was in its place", func() {
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(os.Rename(filepath.Join(directory, "bin/agent"), filepath.Join(directory, "bin/agent.new"))).To(Succeed())
		Expect(os.Link(filepath.Join(directory, "bin/agent.previous"), filepath.Join(directory, "bin/agent"))).To(Succeed())
		for range maxTrialStarts + 2 {
			Expect(running().Guard()).To(Succeed())
		}
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(contents("bin/agent") + contents("bin/agent.previous")).To(Equal("newold"))
	})

	It("does not become the previous one if it is replaced twice before the agent starts again", func() {
		old := running()
		for range 2 {
			Expect(old.Replace(context.Background(), []byte("new"))).To(Succeed())
			Expect(contents("bin/agent") + contents("bin/agent.previous")).To(Equal("newold"))
		}
		Expect(tried).To(Equal([]string{"new"}))
	})

	It("replaces a damaged one, which does not become the previous one", func() {
		old := running()
		Expect(os.WriteFile(filepath.Join(directory, "bin/agent"), []byte("damaged"), 0o755)).To(Succeed())
		Expect(old.Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(files()).To(Equal([]string{"agent", "agent.trial"}))
		Expect(contents("bin/agent")).To(Equal("new"))
	})

	It("that does not come up makes room for the previous one, which does not try it again", func() {
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		for range maxTrialStarts {
			Expect(running().Guard()).To(Succeed())
			Expect(contents("bin/agent")).To(Equal("new"))
		}
		Expect(running().Guard()).To(Succeed())
		Expect(contents("bin/agent")).To(Equal("old"))
		Expect(running().Guard()).To(Succeed())
		Expect(running().prove()).To(Succeed())
		Expect(running().Replace(context.Background(), []byte("new"))).To(MatchError(ContainSubstring("did not come up 5 times")))
		Expect(contents("bin/agent")).To(Equal("old"))
		Expect(running().Replace(context.Background(), []byte("newer"))).To(Succeed())
		Expect(contents("bin/agent")).To(Equal("newer"))
	})

	It("has the starts counted until it works", func() {
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		for range maxTrialStarts {
			Expect(running().Guard()).To(Succeed())
		}
		Expect(contents("bin/agent")).To(Equal("new"))
		Expect(running().prove()).To(Succeed())
		Expect(running().Guard()).To(Succeed())
		Expect(files()).To(Equal([]string{"agent"}))
	})

	It("is tried again after a power failure between the return of the previous one and its record", func() {
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(os.Rename(filepath.Join(directory, "bin/agent.previous"), filepath.Join(directory, "bin/agent"))).To(Succeed())
		Expect(running().Guard()).To(Succeed())
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(contents("bin/agent")).To(Equal("new"))
	})

	It("that was written before a power failure is written again", func() {
		for _, name := range []string{"agent.new", "agent.previous"} {
			Expect(os.WriteFile(filepath.Join(directory, "bin", name), []byte("half"), 0o600)).To(Succeed())
		}
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(contents("bin/agent")).To(Equal("new"))
		Expect(os.Stat(filepath.Join(directory, "bin/agent"))).To(HaveField("Mode()", os.FileMode(0o755)))
		Expect(contents("bin/agent.previous")).To(Equal("old"))
	})

	It("is on the disk with the previous one when it has replaced it", func() {
		disk := powerloss.NewDisk()
		directory = disk.Root
		Expect(os.MkdirAll(filepath.Join(directory, "bin"), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(directory, "bin/agent"), []byte("old"), 0o755)).To(Succeed())
		unix.Sync()
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		disk.AfterLoss(func(root string) {
			directory = root
			Expect(contents("bin/agent") + contents("bin/agent.previous")).To(Equal("newold"))
			Expect(contents("bin/agent.trial")).To(ContainSubstring(hash("new")))
		})
	})

	It("works also with a damaged count of starts", func() {
		Expect(os.WriteFile(filepath.Join(directory, "bin/agent.trial"), []byte("x"), 0o600)).To(Succeed())
		Expect(running().Guard()).To(Succeed())
		Expect(running().Replace(context.Background(), []byte("new"))).To(Succeed())
		Expect(running().Guard()).To(Succeed())
	})
})
