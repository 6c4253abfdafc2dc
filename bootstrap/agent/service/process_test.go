package service

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// Limits of the program.
const (
	maxPackedProgram = 8 << 20  // bytes
	maxIdleMemory    = 20 << 10 // KiB
)

// build builds the program with a version.
func build(version string) []byte {
	GinkgoHelper()
	name := filepath.Join(GinkgoT().TempDir(), "poolboot-agent")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+version, "-o", name, "../../../cmd/poolboot-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	program, err := os.ReadFile(name)
	Expect(err).NotTo(HaveOccurred())
	return program
}

// dying is a program that works only as long as it is checked.
var dying = []byte("#!/bin/sh\ntest \"$1\" = check\n")

func hashOf(program []byte) string {
	sum := sha512.Sum512(program)
	return hex.EncodeToString(sum[:])
}

// fakeSystemctl says that the kubelet runs, and what /opt/state says about the system.
const fakeSystemctl = "#!/bin/sh\n[ $1 != is-system-running ] || exec cat /opt/state\n[ $1 != show ] || printf 'Id=kubelet.service\\nLoadState=loaded\\nActiveState=active\\nSubState=running\\n'\n"

// mount makes the directory of a host a root directory with the programs of this machine.
func (w *world) mount() {
	GinkgoHelper()
	for _, directory := range []string{"/usr", "/proc", "/dev"} {
		target := filepath.Join(w.directory, directory)
		Expect(os.MkdirAll(target, 0o755)).To(Succeed())
		if err := syscall.Mount(directory, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			Skip("a root directory of its own needs the right to mount: " + err.Error())
		}
		DeferCleanup(syscall.Unmount, target, syscall.MNT_DETACH)
	}
	// This machine need not have systemd, and what is mounted must not be seen outside.
	usr, systemctl := filepath.Join(w.directory, "/usr"), filepath.Join(w.directory, "/opt/systemctl")
	w.write("/opt/systemctl", fakeSystemctl)
	Expect(os.Chmod(systemctl, 0o755)).To(Succeed())
	Expect(syscall.Mount("", usr, "", syscall.MS_PRIVATE|syscall.MS_REC, "")).To(Succeed())
	target := filepath.Join(usr, "/bin/systemctl")
	Expect(target).To(BeARegularFile(), "install systemd")
	Expect(syscall.Mount(systemctl, target, "", syscall.MS_BIND, "")).To(Succeed())
	DeferCleanup(syscall.Unmount, target, syscall.MNT_DETACH)
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if target, err := os.Readlink("/" + name); err == nil {
			Expect(os.Symlink(target, filepath.Join(w.directory, name))).To(Succeed())
		}
	}
}

// systemd starts the program again and again, as its unit says, until the spec ends. pid returns that of the running
// one.
func (w *world) systemd() (pid func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	pids := make(chan int, 1)
	pids <- 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			guard := exec.CommandContext(ctx, assignment.PreviousProgramPath, "guard")
			guard.SysProcAttr, guard.Dir = &syscall.SysProcAttr{Chroot: w.directory}, "/"
			_ = guard.Run() // there is usually none
			cmd := exec.CommandContext(ctx, assignment.ProgramPath, "run")
			cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: w.directory, Pdeathsig: syscall.SIGKILL}, "/"
			cmd.Stdout, cmd.Stderr, cmd.Env = GinkgoWriter, GinkgoWriter, []string{"PATH=/usr/bin"}
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
			if err := cmd.Start(); err != nil {
				_, _ = fmt.Fprintln(GinkgoWriter, "start:", err)
				time.Sleep(100 * time.Millisecond) // RestartSec
				continue
			}
			<-pids
			pids <- cmd.Process.Pid
			_ = cmd.Wait()
		}
	}()
	DeferCleanup(func() {
		cancel()
		<-done
	})
	return func() int {
		pid := <-pids
		pids <- pid
		return pid
	}
}

// memory returns the resident memory of a process in KiB.
func memory(pid int) int {
	GinkgoHelper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Expect(err).NotTo(HaveOccurred())
	match := regexp.MustCompile(`VmRSS:\s*(\d+) kB`).FindSubmatch(status)
	Expect(match).NotTo(BeNil())
	size, err := strconv.Atoi(string(match[1]))
	Expect(err).NotTo(HaveOccurred())
	return size
}

// switches returns how often a process was woken, by all its threads.
func switches(pid int) (count int) {
	GinkgoHelper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	Expect(err).NotTo(HaveOccurred())
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		Expect(err).NotTo(HaveOccurred())
		match := regexp.MustCompile(`(?m)^voluntary_ctxt_switches:\s*(\d+)`).FindSubmatch(status)
		Expect(match).NotTo(BeNil())
		n, err := strconv.Atoi(string(match[1]))
		Expect(err).NotTo(HaveOccurred())
		count += n
	}
	return count
}

var _ = Describe("The program", Ordered, func() {
	var first, second []byte
	BeforeAll(func() { first, second = build("v0.1.0"), build("v0.2.0") })

	offer := func(version string, program []byte) func(*assignment.Assignment) {
		return func(a *assignment.Assignment) {
			a.Agent = &assignment.Agent{Version: version, Oldest: "v0.1.0", SHA512: map[string]string{runtime.GOARCH: hashOf(program)}}
		}
	}
	begin := func(change ...func(*assignment.Assignment)) (w *world, pid func() int, revision string) {
		w = newWorld()
		w.mount()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		w.write(assignment.ProgramPath, string(first))
		Expect(os.Chmod(filepath.Join(w.directory, assignment.ProgramPath), 0o755)).To(Succeed())
		for _, program := range [][]byte{first, second, []byte("#!/bin/sh\nexit 1\n"), dying} {
			w.rendered[hashOf(program)] = program
		}
		revision = w.offer("rendered-a", "a", change...)
		return w, w.systemd(), revision
	}
	state := func(w *world) func() string {
		return func() string {
			return w.annotation(agentv1.StateAnnotation) + " " + w.annotation(agentv1.TargetAnnotation) + " " + w.annotation(agentv1.AgentAnnotation)
		}
	}

	It("is small, needs little memory after an update, and sleeps while nothing happens", func() {
		counter := &counter{}
		packed, err := gzip.NewWriterLevel(counter, gzip.BestCompression)
		Expect(err).NotTo(HaveOccurred())
		_, err = packed.Write(first)
		Expect(err).NotTo(HaveOccurred())
		Expect(packed.Close()).To(Succeed())
		Expect(counter.size).To(BeNumerically("<=", maxPackedProgram))

		// The limit is that of pages of the usual size. The program inherits this.
		Expect(unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)).To(Succeed())
		DeferCleanup(unix.Prctl, unix.PR_SET_THP_DISABLE, uintptr(0), uintptr(0), uintptr(0), uintptr(0))
		w, pid, _ := begin()
		Eventually(state(w), "30s").Should(HavePrefix("Done "))
		updated := w.offer("rendered-b", strings.Repeat("b", 100_000))
		Eventually(state(w), "30s").Should(Equal("Done " + updated + " v0.1.0"))
		Eventually(func() int { return memory(pid()) }, "10s").Should(BeNumerically("<=", maxIdleMemory))
		By(fmt.Sprintf("using %d KiB, packed in %d bytes", memory(pid()), counter.size))
		time.Sleep(2 * lookInterval) // what the update changed is checked
		observed, err := time.ParseDuration(cmp.Or(os.Getenv("POOLBOOT_IDLE_TIME"), "5s"))
		Expect(err).NotTo(HaveOccurred())
		allowed := 5
		if observed >= time.Minute {
			// The connection of the last report is closed once, after a minute, and systemctl runs twice for each look.
			allowed = 50 + int(observed/lookInterval+1)*100
		}
		var woken int
		Eventually(func() int { // a busy machine delays what remains of the update
			before := switches(pid())
			time.Sleep(observed)
			woken = switches(pid()) - before
			return woken
		}, 6*observed, "1ms").Should(BeNumerically("<=", allowed))
		By(fmt.Sprintf("being woken %d times in %s, and using %d KiB", woken, observed, memory(pid())))
	})

	It("replaces itself by another version that the manager offers, and goes on", func() {
		w, _, _ := begin()
		Eventually(state(w), "30s").Should(HaveSuffix(" v0.1.0"))
		updated := w.offer("rendered-b", "b", offer("v0.2.0", second))
		Eventually(state(w), "60s").Should(Equal("Done " + updated + " v0.2.0"))
		Expect(w.read("/etc/motd")).To(Equal("b"))
		Expect(hashOf([]byte(w.read(assignment.ProgramPath)))).To(Equal(hashOf(second)))
		Eventually(func() []string {
			names, _ := filepath.Glob(filepath.Join(w.directory, assignment.ProgramPath+"*"))
			return names
		}, "10s").Should(HaveLen(1))
	})

	It("returns if the other one passes its check and ends as soon as it is started", func() {
		w, _, _ := begin()
		Eventually(state(w), "30s").Should(HaveSuffix(" v0.1.0"))
		updated := w.offer("rendered-b", "b", offer("v0.2.0", dying))
		Eventually(state(w), "60s").Should(Equal("Done " + updated + " v0.1.0"))
		Expect(hashOf([]byte(w.read(assignment.ProgramPath)))).To(Equal(hashOf(first)))
		Expect(w.read(assignment.ProgramPath + trialEnding)).To(ContainSubstring(`"starts":6`))
	})

	It("says in which boot it runs, and after its end that it has stopped, unless the host shuts down", func() {
		w, _, _ := begin()
		boot := func() string { return w.annotation(agentv1.BootAnnotation) }
		Eventually(boot, "30s").Should(And(Not(BeEmpty()), Equal(Clock{}.BootID())))
		stopped := func(system string) int {
			GinkgoHelper()
			w.write("/opt/state", system+"\n")
			cmd := exec.Command(assignment.ProgramPath, "stopped")
			cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Chroot: w.directory}, "/"
			Expect(cmd.CombinedOutput()).To(BeEmpty())
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.stops
		}
		Expect(stopped("stopping")).To(Equal(0))
		Expect(stopped("degraded")).To(Equal(1))
		Eventually(boot, "30s").Should(Equal(Clock{}.BootID()), "the agent that still runs corrects it")
	})

	It("stays if the other one does not work on this host", func() {
		w, _, _ := begin()
		Eventually(state(w), "30s").Should(HaveSuffix(" v0.1.0"))
		updated := w.offer("rendered-b", "b", offer("v0.2.0", []byte("#!/bin/sh\nexit 1\n")))
		Eventually(state(w), "30s").Should(Equal("Done " + updated + " v0.1.0"))
		Expect(hashOf([]byte(w.read(assignment.ProgramPath)))).To(Equal(hashOf(first)))
	})
})

// counter counts bytes.
type counter struct{ size int }

func (c *counter) Write(p []byte) (int, error) {
	c.size += len(p)
	return len(p), nil
}
