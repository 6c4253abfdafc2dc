package clusternodes

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestClusterNodes(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Nodes of a Cluster")
}
