package rollout

import (
	. "github.com/onsi/ginkgo/v2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = DescribeTable("A command about a pool refuses", func(command string) {
	s := newSite(nil)
	clitest.ExpectError(s.run(command, "nope"), 1, `namespace edge contains no MachineConfigPool "nope": correct the name, or set --namespace`)
	clitest.ExpectError(s.run(command, "infra", "gpu"), 1, `"gpu": name one MachineConfigPool only`)
	if command != "plan" {
		clitest.ExpectError(s.run(command), 1, "the name of a MachineConfigPool is missing")
	}
},
	Entry("status", "status"), Entry("plan", "plan"), Entry("pause", "pause"), Entry("resume", "resume"), Entry("history", "history"),
)
