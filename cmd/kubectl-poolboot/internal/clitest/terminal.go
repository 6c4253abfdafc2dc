package clitest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// OpenTerminal returns a terminal of a size, and what is written to it.
func OpenTerminal(columns, lines uint16) (*os.File, *gbytes.Buffer) {
	GinkgoHelper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(screen.Close)
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	Expect(err).NotTo(HaveOccurred())
	Expect(unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)).To(Succeed())
	Expect(unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns})).To(Succeed())
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(terminal.Close)
	written := gbytes.NewBuffer()
	go func() { _, _ = io.Copy(written, screen) }()
	return terminal, written
}

// Screen returns the lines that a terminal shows of what a command printed in its place, with colors as <red> and
// <green>.
func Screen(written *gbytes.Buffer) []string {
	frames := strings.Split(string(written.Contents()), "\x1b[J")
	return Rows(strings.NewReplacer("\r\n", "\n", "\x1b[31m", "<red>", "\x1b[32m", "<green>", "\x1b[0m", "").Replace(frames[len(frames)-1]))
}

// RunOnTerminal runs a command line of kubectl poolboot with one command on a cluster, and prints its answer to a
// terminal with 120 columns.
func RunOnTerminal(cluster input.Connection, newCommand Command, args ...string) Result {
	GinkgoHelper()
	const end = "-- end --"
	terminal, written := OpenTerminal(120, 50)
	var errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: terminal, ErrOut: &errOut}
	code := cli.Execute(cli.NewRoot(streams, newCommand(streams, cluster)), &errOut, args)
	_, err := terminal.WriteString(end)
	Expect(err).NotTo(HaveOccurred())
	Eventually(written).Should(gbytes.Say(end))
	out := strings.TrimSuffix(strings.ReplaceAll(string(written.Contents()), "\r\n", "\n"), end)
	return Result{Code: code, Out: out, ErrOut: Unwrap(errOut.String())}
}
