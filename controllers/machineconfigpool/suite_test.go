package machineconfigpool

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMachineConfigPool(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // the machine can be busy
	RunSpecs(t, "MachineConfigPool controller")
}
