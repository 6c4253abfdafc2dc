package networkdata_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestNetworkdata(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "networkdata")
}
