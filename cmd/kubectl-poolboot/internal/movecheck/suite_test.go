package movecheck

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestMoveCheck(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot move-check")
}
