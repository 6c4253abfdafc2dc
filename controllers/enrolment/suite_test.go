package enrolment

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestEnrolment(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "enrolment controller")
}
