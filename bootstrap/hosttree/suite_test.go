package hosttree_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

func TestHostTree(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Tree of a host")
}

// host has a user and a group.
var host = hosttree.System{Accounts: hosttree.Accounts{
	Users: map[string]hosttree.Account{"core": {UID: 1000, GID: 1001, Home: "/var/home/core"}}, Groups: map[string]int{"adm": 4},
}}

// treeOf returns what a document without its version writes.
func treeOf(document string, on hosttree.System) (hosttree.Tree, error) {
	GinkgoHelper()
	config, err := ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},` + document + `}`))
	Expect(err).NotTo(HaveOccurred())
	return hosttree.New(config).On(on)
}
