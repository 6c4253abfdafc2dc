package status

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var writesStatus = regexp.MustCompile(`\.Status\(\)\.(Patch|Update|Apply)\(`)

var _ = Describe("Other code", func() {
	It("does not write status", func() {
		const root = "../../.."
		var writers []string
		for _, folder := range []string{"bootstrap", "controllers", "cmd"} {
			Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				text, err := os.ReadFile(path)
				if writesStatus.Match(text) {
					writers = append(writers, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
				}
				return err
			})).To(Succeed())
		}
		Expect(writers).To(ConsistOf("controllers/internal/status/status.go",
			"cmd/config-server/records.go", "cmd/config-server/admissions.go", // they patch their fields by name
		))
	})
})
