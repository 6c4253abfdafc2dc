package plan

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

func TestPlan(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot plan")
}

// runPlan runs plan with a text on standard input.
func runPlan(text string, args ...string) clitest.Result {
	return clitest.Run(text, clitest.Offline(New), append([]string{"plan"}, args...)...)
}

// beWithoutChanges matches an answer in JSON, apart from its list of changes.
func beWithoutChanges(want string) types.GomegaMatcher {
	return WithTransform(func(text string) (string, error) {
		answer := map[string]any{}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			return "", err
		}
		delete(answer, "changes")
		rest, err := json.Marshal(answer)
		return string(rest), err
	}, MatchJSON(want))
}
