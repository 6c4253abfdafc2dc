package host_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
)

// hostDirVariable is an environment variable. If it is set, this test binary runs a host until a test kills it.
const hostDirVariable = "POOLBOOT_TEST_HOST_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(hostDirVariable)
	if dir == "" {
		os.Exit(m.Run())
	}
	h := host.New(host.Options{Name: "orphan", Dir: dir})
	if err := h.PowerOn(context.Background(), beating()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-h.Done()
}

func TestHost(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "Simulated host")
}
