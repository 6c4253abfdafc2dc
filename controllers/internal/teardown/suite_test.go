package teardown_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestTeardown(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Teardown of a boot")
}
