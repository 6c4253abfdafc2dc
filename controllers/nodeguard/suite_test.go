package nodeguard

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestNodeGuard(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Node guard controller")
}
