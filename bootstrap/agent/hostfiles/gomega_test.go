package hostfiles

import (
	"os"

	"github.com/onsi/gomega/gcustom"
	gomegatypes "github.com/onsi/gomega/types"
)

// BeSameFile matches a path that is a hard link to another one.
func BeSameFile(other string) gomegatypes.GomegaMatcher {
	return gcustom.MakeMatcher(func(name string) (bool, error) {
		first, err := os.Lstat(name)
		if err != nil {
			return false, err
		}
		second, err := os.Lstat(other)
		return err == nil && os.SameFile(first, second), err
	}).WithTemplate("Expected {{.Actual}} to be the same file as {{.Data}}", other)
}
