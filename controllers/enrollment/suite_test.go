package enrollment

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestEnrollment(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Enrollment controller")
}
