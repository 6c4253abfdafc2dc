package rollout

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

var _ = Describe("status of all pools", func() {
	It("names a namespace without pools, and fails if it does not exist", func(ctx SpecContext) {
		s := newSite(nil)
		Expect(s.live.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty"}})).To(Succeed())
		Expect(s.run("status", "-n", "empty")).To(Equal(clitest.Result{ErrOut: "No MachineConfigPools in namespace empty.\n"}))
		clitest.ExpectError(s.run("status", "-n", "nope"), 1, "namespace nope does not exist: correct --namespace")
		clitest.ExpectError(s.run("status", "-n", "nope", "-o", "json"), 1, "namespace nope does not exist")
	})
})

var _ = DescribeTable("A command about a pool refuses", func(command string) {
	s := newSite(nil)
	clitest.ExpectError(s.run(command, "nope"), 1, `namespace edge contains no MachineConfigPool "nope": correct the name, or set --namespace`)
	clitest.ExpectError(s.run(command, "infra", "gpu"), 1, `"gpu": name one MachineConfigPool only`)
	if command != "plan" && command != "status" {
		clitest.ExpectError(s.run(command), 1, "name one MachineConfigPool: kubectl poolboot rollout status lists them")
	}
	clitest.ExpectError(s.run(command, "deploy/infra"), 1, `deploy/infra is no MachineConfigPool: leave out "deploy/"`)
	Expect(s.run(command, "pbpool/infra").ErrOut).To(Equal(s.run(command, "infra").ErrOut))
	Expect(s.run(command, "machineconfigpools.poolboot.io/infra").Code).To(Equal(s.run(command, "infra").Code))
},
	Entry("status", "status"), Entry("plan", "plan"), Entry("pause", "pause"), Entry("resume", "resume"), Entry("history", "history"), Entry("undo", "undo"),
)

var _ = It("A command refuses a negative duration", func() {
	clitest.ExpectError(newSite(nil).run("status", "infra", "--watch", "--timeout", "-5s"), 1, "--timeout -5s is negative: set a duration such as 30m, or leave it out")
})

var _ = It("A command about a pool names the flag of a kubeconfig that does not exist", func() {
	clitest.ExpectError(clitest.RunOn(input.NewConnection(), newCommand, "rollout", "status", "infra", "--kubeconfig", "nowhere.kubeconfig"), 1,
		"--kubeconfig: stat nowhere.kubeconfig: no such file or directory: correct the name")
})

var _ = It("breaks a path that is longer than a line after a slash", func() {
	path := strings.Repeat("/directory", 15)
	Expect(strings.Split(cli.Paragraph("", path), "\n")[0]).To(Equal(strings.Repeat("/directory", 11) + "/"))
})
