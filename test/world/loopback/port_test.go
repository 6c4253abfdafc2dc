package loopback_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// reservePortsVariable is an environment variable. If it is set, this test binary reserves ports, prints them and keeps
// them until its input is closed.
const reservePortsVariable = "POOLBOOT_TEST_RESERVE_PORTS"

func TestMain(m *testing.M) {
	if os.Getenv(reservePortsVariable) != "" {
		found, err := reservePorts()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(strings.Join(found, " "))
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

func TestLoopback(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Loopback")
}

// reservePorts reserves so many ports that two processes with random ports very likely have one in common.
func reservePorts() (found []string, err error) {
	for range 300 {
		port, err := loopback.FreePort()
		if err != nil {
			return nil, err
		}
		found = append(found, fmt.Sprint(port))
	}
	return found, nil
}

var _ = Describe("A free port", func() {
	It("can be listened on", func() {
		port, err := loopback.FreePort()
		Expect(err).NotTo(HaveOccurred())
		listener, err := net.Listen("tcp", loopback.Address(port))
		Expect(err).NotTo(HaveOccurred())
		Expect(listener.Close()).To(Succeed())
	})

	It("is given to only one of all processes", func() {
		other := exec.Command(os.Args[0])
		other.Env = append(os.Environ(), reservePortsVariable+"=yes")
		input, err := other.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		output, err := other.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Start()).To(Succeed())
		DeferCleanup(func() { Expect(input.Close()).To(Succeed()); Expect(other.Wait()).To(Succeed()) })
		theirs, err := bufio.NewReader(output).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		given := map[string]bool{}
		own, err := reservePorts()
		Expect(err).NotTo(HaveOccurred())
		for _, port := range append(strings.Fields(theirs), own...) {
			Expect(given).NotTo(HaveKey(port))
			given[port] = true
		}
	})
})
