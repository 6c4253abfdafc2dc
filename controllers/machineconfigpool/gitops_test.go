package machineconfigpool

import (
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// argoHealth returns the health of a pool by the script for Argo CD in docs/tasks.md.
func argoHealth(p *poolv1.MachineConfigPool) string {
	GinkgoHelper()
	page, err := os.ReadFile("../../docs/tasks.md")
	Expect(err).NotTo(HaveOccurred())
	script := regexp.MustCompile("(?s)```lua\n(.*?)```").FindSubmatch(page)
	Expect(script).NotTo(BeNil())
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	Expect(err).NotTo(HaveOccurred())
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", luaValue(state, content))
	Expect(state.DoString(string(script[1]))).To(Succeed())
	return state.Get(-1).(*lua.LTable).RawGetString("status").String()
}

// luaValue returns a value as Argo CD gives it to a script.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case []any:
		list := state.NewTable()
		for _, item := range value {
			list.Append(luaValue(state, item))
		}
		return list
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}

var _ = Describe("A pool, as Flux and others with kstatus, and Argo CD read it", func() {
	var s *fixture
	var infra *poolv1.MachineConfig
	health := func(p *poolv1.MachineConfigPool) status.Status {
		GinkgoHelper()
		health, _ := controllertest.Health(p)
		Expect(argoHealth(p)).To(Equal(map[status.Status]string{status.CurrentStatus: "Healthy", status.InProgressStatus: "Progressing", status.FailedStatus: "Degraded"}[health]))
		return health
	}
	BeforeEach(func() {
		infra = config("50-infra", "infra", "0")
		s = newFixture(cluster(), newPool("worker", "worker", 2), newPool("infra", "infra", 1), infra)
		s.reconcile("infra")
		Expect(s.Create(ctx(), follower("m1", bootstrapv1.UpdateWaitingReason))).To(Succeed())
	})

	It("is in progress while hosts follow, and current when all have", func() {
		Expect(health(s.reconcile("infra"))).To(Equal(status.InProgressStatus))
		Expect(health(s.becomes("m1", bootstrapv1.UpdateRebootingReason))).To(Equal(status.InProgressStatus))
		s.complete("m1")
		Expect(health(s.reconcile("infra"))).To(Equal(status.CurrentStatus))
		s.set(infra, "changed")
		Expect(health(s.reconcile("infra"))).To(Equal(status.InProgressStatus))
	})

	It("is in progress until the manager has seen it, also for a restart", func() {
		s.complete("m1")
		p := s.reconcile("infra")
		p.Generation++
		p.Spec.Updates.Restart = poolv1.RestartRequest{ID: "1", Kind: poolv1.RestartReboot}
		Expect(health(p)).To(Equal(status.InProgressStatus))
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(health(s.reconcile("infra"))).To(Equal(status.InProgressStatus))
	})

	It("is in progress while a pause holds a change, and current while it holds nothing", func() {
		s.complete("m1")
		s.pause(true)
		Expect(health(s.reconcile("infra"))).To(Equal(status.CurrentStatus))
		s.set(infra, "changed")
		Expect(health(s.reconcile("infra"))).To(Equal(status.InProgressStatus))
	})

	It("has failed while a host needs a person, and goes on afterwards", func() {
		p := s.becomes("m1", bootstrapv1.UpdateDegradedReason)
		Expect(health(p)).To(Equal(status.FailedStatus))
		result, message := controllertest.Health(p)
		Expect(result).To(Equal(status.FailedStatus))
		Expect(message).To(ContainSubstring("1 of 1 hosts need a user to act: m1"))
		Expect(health(s.becomes("m1", bootstrapv1.UpdateWaitingReason))).To(Equal(status.InProgressStatus))
	})

	It("has failed while it can't be rendered", func() {
		s.complete("m1")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.0.0"}}`)
		Expect(s.Update(ctx(), infra)).To(Succeed())
		Expect(health(s.reconcile("infra"))).To(Equal(status.FailedStatus))
	})
})
