package bootstrapdata

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestPoolbootConfig(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "PoolbootConfig controller")
}
