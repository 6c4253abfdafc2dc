package baremetalhost

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestBareMetalHost(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "BareMetalHost controller")
}
