package unitstate_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
)

func TestUnitState(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "States of units")
}

var _ = DescribeTable("A unit", func(state unitstate.State, mustRun bool, want string) {
	state.Unit = "a.service"
	if state.Load == "" {
		state.Load = "loaded"
	}
	got := ""
	if problem := state.Problem(mustRun); problem != nil {
		got = problem.String()
	}
	Expect(got).To(Equal(want))
},
	Entry("that runs", unitstate.State{Active: "active", Sub: "running", Result: "success"}, true, ""),
	Entry("that ran and ended", unitstate.State{Active: "inactive", Sub: "dead", Result: "success"}, false, ""),
	Entry("that does not exist", unitstate.State{Load: "not-found", Active: "inactive"}, true, ""),
	Entry("that somebody masked", unitstate.State{Load: "masked", Active: "inactive"}, false, ""),
	Entry("that must run and is masked", unitstate.State{Load: "masked", Active: "inactive"}, true, "a.service: systemd can't start it: its unit file is masked"),
	Entry("whose file is wrong", unitstate.State{Load: "bad-setting", Active: "inactive"}, false, "a.service: systemd can't start it: its unit file is bad-setting"),
	Entry("that failed", unitstate.State{Active: "failed", Sub: "failed", Result: "exit-code", ExitStatus: 3}, false, "a.service: it failed: result exit-code, exit status 3"),
	Entry("that was killed", unitstate.State{Active: "failed", Sub: "failed", Result: "oom-kill", Signal: 9}, false, "a.service: it failed: result oom-kill, signal 9"),
	Entry("that ended and is started again", unitstate.State{Active: "activating", Sub: "auto-restart", Result: "exit-code", ExitStatus: 1, Restarts: 7}, false,
		"a.service: it ended, and systemd starts it again: result exit-code, exit status 1 (restarts: 7)"),
	Entry("that ends without an error and is started again, as it should", unitstate.State{Active: "activating", Sub: "auto-restart", Result: "success"}, false, ""),
	Entry("that must run and ends without an error", unitstate.State{Active: "activating", Sub: "auto-restart", Result: "success"}, true,
		"a.service: it ended, and systemd starts it again"),
	Entry("that must run and was started again a moment ago", unitstate.State{Active: "active", Sub: "running", Result: "success", Restarts: 1, Age: 29 * time.Second}, true,
		"a.service: it ended, and systemd starts it again (restarts: 1)"),
	Entry("that systemd starts again only after a failure, and that was started again a moment ago",
		unitstate.State{Active: "active", Sub: "running", Result: "success", Restart: "on-failure", RestartDelay: "10s", Restarts: 1, Age: 29 * time.Second}, false,
		"a.service: it ended, and systemd starts it again (restarts: 1)"),
	Entry("that systemd always starts again at once, and that was started again a moment ago",
		unitstate.State{Active: "active", Sub: "running", Result: "success", Restart: "always", RestartDelay: "100ms", Restarts: 1, Age: 29 * time.Second}, false,
		"a.service: it ended, and systemd starts it again (restarts: 1)"),
	Entry("that systemd starts again after a while, whatever happened", unitstate.State{Active: "active", Sub: "running", Result: "success", Restart: "always", RestartDelay: "10s", Restarts: 1}, false, ""),
	Entry("that systemd started again and that has stayed up since", unitstate.State{Active: "active", Sub: "running", Result: "success", Restart: "on-failure", Restarts: 1, Age: 30 * time.Second}, false, ""),
	Entry("that must run and has stayed up since it was started again", unitstate.State{Active: "active", Sub: "running", Result: "success", Restarts: 1, Age: 30 * time.Second}, true, ""),
	Entry("that must run and waits", unitstate.State{Active: "inactive", Sub: "dead", Result: "success", WaitsFor: []string{"b.service"}}, true,
		"a.service: it has not started: it waits for b.service"),
	Entry("that must run and needs another one", unitstate.State{Active: "inactive", Sub: "dead", Result: "success", FailedDependencies: []string{"b.service", "c.mount"}}, true,
		"a.service: it is not running: it needs b.service and c.mount, which failed"),
	Entry("that must run and was stopped", unitstate.State{Active: "inactive", Sub: "dead", Result: "success"}, true, "a.service: it is not running"),
	Entry("that must run and starts", unitstate.State{Active: "activating", Sub: "start-pre", Result: "success"}, true, "a.service: it is not running yet: it is activating (start-pre)"),
)
