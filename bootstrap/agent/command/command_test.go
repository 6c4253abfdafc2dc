package command_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
)

func TestCommand(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Programs of the host")
}

var _ = Describe("A program of the host", func() {
	ctx := context.Background()

	It("gets its arguments, its input, and no environment of the agent", func() {
		GinkgoT().Setenv("SECRET", "of the agent")
		output, err := command.Runner{}.RunWithInput(ctx, []byte("typed"), "sh", "-c", `cat; echo " $1"; env | grep -v -E '^(PWD|_|SHLVL|OLDPWD)='; pwd`, "sh", "x y")
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Split(string(output), "\n")).To(ConsistOf("typed x y", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "/", ""))
	})

	It("that fails is an error with its command and code, its output is returned, and what it wrote is only in the details", func() {
		output, err := command.Runner{}.Run(ctx, "sh", "-c", `echo out; printf 'broken\033[31m\n' >&2; exit 7`)
		Expect(err).To(MatchError(`sh -c echo out; printf 'broken\033[31m\n' >&2; exit 7: exit status 7`))
		Expect(command.Detail(err)).To(HaveSuffix("exit status 7: broken [31m"))
		wrapped := errors.Join(errors.New("other"), fmt.Errorf("unit a.service: %w: correct it", err))
		Expect(command.Detail(wrapped)).To(And(HavePrefix("other\nunit a.service: sh -c"), HaveSuffix("exit status 7: broken [31m: correct it")))
		Expect(command.Detail(errors.New("other"))).To(Equal("other"))
		Expect(command.Detail(nil)).To(BeEmpty())
		Expect(command.ExitCode(err)).To(Equal(7))
		Expect(string(output)).To(Equal("out\n"))
		var failed *exec.ExitError
		Expect(err).To(MatchError(ContainSubstring("exit status")))
		Expect(errors.As(err, &failed)).To(BeTrue())
	})

	It("never shows its input in an error", func() {
		_, err := command.Runner{}.RunWithInput(ctx, []byte("$6$salt$hash"), "sh", "-c", "exit 1")
		Expect(err).To(MatchError(Not(ContainSubstring("hash"))))
	})

	It("that does not exist is told apart from one that fails", func() {
		_, err := command.Runner{}.Run(ctx, "no-such-program")
		Expect(err).To(MatchError(exec.ErrNotFound))
		Expect(err).To(MatchError(HavePrefix("the host has no program no-such-program")))
		_, err = command.Runner{}.Run(ctx, "/etc/passwd")
		Expect(err).To(MatchError(exec.ErrNotFound), "it is no program")
	})

	It("is ended with its children if it takes too long", func() {
		pids := filepath.Join(GinkgoT().TempDir(), "pids")
		start := time.Now()
		_, err := command.Runner{Timeout: 500 * time.Millisecond}.Run(ctx, "sh", "-c", `sleep 100 & echo $! > `+pids+`; wait`)
		Expect(err).To(MatchError(context.DeadlineExceeded))
		Expect(err).To(MatchError(ContainSubstring("it did not end within 500ms")))
		Expect(time.Since(start)).To(BeNumerically("<", 4*time.Second))
		Eventually(func() bool { return isAlive(pids) }).Should(BeFalse(), "the kernel ends a killed process a moment later")
	})

	It("is killed if it ignores SIGTERM", func() {
		_, err := command.Runner{Timeout: 200 * time.Millisecond}.Run(ctx, "sh", "-c", `trap "" TERM; sleep 100 & wait; sleep 100`)
		Expect(err).To(MatchError(context.DeadlineExceeded))
	})

	It("ends when the context ends, and does not start after that", func() {
		canceled, cancel := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err := command.Runner{}.Run(canceled, "sleep", "100")
		Expect(err).To(MatchError(context.Canceled))
		marker := filepath.Join(GinkgoT().TempDir(), "marker")
		_, err = command.Runner{}.Run(canceled, "touch", marker)
		Expect(err).To(MatchError(context.Canceled))
		Expect(marker).NotTo(BeAnExistingFile())
	})

	It("leaves no process of its group behind when it ends", func() {
		pids := filepath.Join(GinkgoT().TempDir(), "pids")
		_, err := command.Runner{}.Run(ctx, "sh", "-c", `sleep 100 >/dev/null 2>&1 & echo $! > `+pids)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() bool { return isAlive(pids) }).Should(BeFalse())
	})

	It("that floods its output is ended, and the memory for it stays bounded", func() {
		output, err := command.Runner{}.Run(ctx, "yes")
		Expect(err).To(MatchError(command.ErrTooMuchOutput))
		Expect(output).To(HaveLen(1 << 20))
		_, err = command.Runner{}.Run(ctx, "sh", "-c", `head -c 10000000 /dev/zero | tr '\0' x >&2; echo end >&2; exit 1`)
		Expect(command.Detail(err)).To(HaveSuffix("xxxend"))
		Expect(len(command.Detail(err))).To(BeNumerically("<", 1500))
	})

	It("that writes too much just before it ends has failed, too", func() {
		for range 20 {
			_, err := command.Runner{}.Run(ctx, "head", "-c", "1048577", "/dev/zero")
			Expect(err).To(MatchError(command.ErrTooMuchOutput))
		}
		Expect(command.Runner{}.Run(ctx, "head", "-c", "1048576", "/dev/zero")).To(HaveLen(1 << 20))
	})

	It("has its arguments shortened in errors", func() {
		_, err := command.Runner{}.Run(ctx, "false", strings.Repeat("ä", 1000))
		Expect(err).To(MatchError(HaveSuffix("ä …: exit status 1")))
		Expect(len(err.Error())).To(BeNumerically("<", 300))
	})
})

// isAlive reports whether the process whose ID is in a file runs.
func isAlive(file string) bool {
	GinkgoHelper()
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	Expect(err).NotTo(HaveOccurred())
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
