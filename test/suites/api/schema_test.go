package api

import (
	"os"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var _ = Describe("The CRDs", func() {
	It("have no defaults: a field that a user does not set is not stored", func() {
		files, err := filepath.Glob(sourcetree.Path("config", "crd", "bases", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(regexp.MustCompile(`(?m)^ +default:`).FindAllString(string(content), -1)).To(BeEmpty(), file)
		}
	})
})
