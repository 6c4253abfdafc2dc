// Package golden compares what specs produce with the files in the folder testdata of their package.
package golden

import (
	"flag"
	"os"
	"path/filepath"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

var update = flag.Bool("update", false, "write the golden files again")

// Expect compares a document with testdata/<name>. With the flag -update, it writes the file first.
func Expect(name string, document []byte) {
	ginkgo.GinkgoHelper()
	file := filepath.Join("testdata", name)
	if *update {
		gomega.Expect(os.WriteFile(file, document, 0o600)).To(gomega.Succeed())
	}
	want, err := os.ReadFile(file)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(string(document)).To(gomega.Equal(string(want)))
}
