package foreignnode

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestForeignNode(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Foreign Node controller")
}
