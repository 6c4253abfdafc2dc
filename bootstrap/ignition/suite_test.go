package ignition_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/coreos/ignition/v2/config"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestIgnition(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Ignition")
}

// expectGolden compares a document with testdata/<name>, and parses it with Ignition's own parser.
func expectGolden(name string, document []byte) {
	GinkgoHelper()
	file := filepath.Join("testdata", name)
	if *update {
		Expect(os.WriteFile(file, append(document, '\n'), 0o600)).To(Succeed())
	}
	golden, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(document) + "\n").To(Equal(string(golden)))
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
