package boots

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestBoots(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot boots")
}
