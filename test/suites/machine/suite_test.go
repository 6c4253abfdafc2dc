// Package machine tests what only a machine shows that boots from its firmware: boot loader, kernel arguments,
// Ignition's stages in the initramfs, partitions and switch root. The machine
// runs in QEMU without KVM, from the Debian image of hack/image.
package machine

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/machine"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// Environment variables with the paths of images in the format qcow2. Without any, these specs do not run: they need
// minutes, and root.
const (
	imageVariable = "POOLBOOT_TEST_IMAGE"
	// olderImageVariable is the variable of the image with Ignition 2.14, which reads spec 3.3 and earlier versions.
	olderImageVariable = "POOLBOOT_TEST_OLDER_IMAGE"
	// selinuxImageVariable is the variable of the image with a policy of SELinux.
	selinuxImageVariable = "POOLBOOT_TEST_SELINUX_IMAGE"
	// arm64ImageVariable is the variable of the image for arm64. Its specs need no other image.
	arm64ImageVariable = "POOLBOOT_TEST_ARM64_IMAGE"
)

var (
	lab  *site.Site
	rack *machine.Rack
)

func TestMachine(t *testing.T) {
	if cmp.Or(os.Getenv(imageVariable), os.Getenv(arm64ImageVariable)) == "" {
		t.Skip("make test-machine and make test-machine-arm64 run these specs")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "A machine")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(20 * time.Minute)
	SetDefaultEventuallyPollingInterval(time.Second)
	image, err := filepath.Abs(os.Getenv(imageVariable))
	Expect(err).NotTo(HaveOccurred())
	rack, err = machine.NewRack(context.WithoutCancel(ctx), GinkgoT().TempDir(), machine.Options{Image: image, Console: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(rack.Close()).To(Succeed()) })
	lab = tenant.StartSite(ctx, site.Options{Hardware: rack, Address: machine.Address, Agents: true})
}, NodeTimeout(5*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) { tenant.ShowLogs(report, lab) })
