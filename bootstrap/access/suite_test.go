package access_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestHostAccess(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "host access")
}
