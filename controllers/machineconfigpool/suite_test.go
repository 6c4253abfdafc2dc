package machineconfigpool

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMachineConfigPool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "MachineConfigPool controller")
}
