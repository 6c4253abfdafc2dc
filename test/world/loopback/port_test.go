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

// asker, set, makes this test binary a program that asks for ports, prints them and keeps them until its input ends.
const asker = "POOLBOOT_TEST_ASK_FOR_PORTS"

func TestMain(m *testing.M) {
	if os.Getenv(asker) != "" {
		found, err := ports()
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

// ports are so many ports that two who chose by chance would hardly choose none alike.
func ports() (found []string, err error) {
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

	It("is given to one only, of all processes", func() {
		other := exec.Command(os.Args[0])
		other.Env = append(os.Environ(), asker+"=yes")
		input, err := other.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		output, err := other.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(other.Start()).To(Succeed())
		DeferCleanup(func() { Expect(input.Close()).To(Succeed()); Expect(other.Wait()).To(Succeed()) })
		theirs, err := bufio.NewReader(output).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		given := map[string]bool{}
		own, err := ports()
		Expect(err).NotTo(HaveOccurred())
		for _, port := range append(strings.Fields(theirs), own...) {
			Expect(given).NotTo(HaveKey(port))
			given[port] = true
		}
	})
})
