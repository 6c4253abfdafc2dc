package ignition_test

import (
	"slices"
	"testing"

	"github.com/coreos/ignition/v2/config"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/golden"
)

func TestIgnition(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Ignition")
}

// expectGolden compares a document with testdata/<name>, and parses it with Ignition's own parser.
func expectGolden(name string, document []byte) {
	GinkgoHelper()
	golden.Expect(name, append(slices.Clip(document), '\n'))
	expectIgnitionReads(document)
}

// expectIgnitionReads parses a document with Ignition's own parser for its newest version.
func expectIgnitionReads(document []byte) {
	GinkgoHelper()
	_, report, err := config.Parse(document)
	Expect(err).NotTo(HaveOccurred(), report.String())
}

// parse parses a valid document.
func parse(document string) ignition.Config {
	GinkgoHelper()
	config, err := ignition.Parse([]byte(document))
	Expect(err).NotTo(HaveOccurred())
	return config
}

// marshal returns a configuration as a document.
func marshal(config ignition.Config) string {
	GinkgoHelper()
	document, err := ignition.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	return string(document)
}
