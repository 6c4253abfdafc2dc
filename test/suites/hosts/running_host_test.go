package hosts_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// runningHost is a host that follows its pool. The specs of a container share one.
type runningHost struct {
	*baremetal.Host
	pool *hostPool
	// configs counts the rendered configs.
	configs int
}

// crashes is a text in a program of the agent that does not come up.
const crashes = "crashes when it starts"

// agentWatcher is the command of the agent in these specs. It stops or kills the agent after a step: after the line of
// its log whose number is in /var/lib/watcher, after the signal. It starts no other programs meanwhile, so it is fast.
const agentWatcher = `#!/bin/bash
grep -q '` + crashes + `$' ` + assignment.ProgramPath + ` && crashes=yes
exec 2> >(while read -r line; do
	echo "$line"
	case $line in
	*'msg="agent started"'*) [ -z "$crashes" ] || kill -KILL $$ ;;
	*msg=phase* | *msg=operation* | *msg=action*)
		[ -e /var/lib/watcher ] && read -r signal number </var/lib/watcher && [ $number -gt 0 ] || continue
		echo $signal $((number - 1)) >/var/lib/watcher
		[ $number = 1 ] || continue
		echo "$line" >/var/lib/watched
		kill -$signal $$
		;;
	esac
done)
exec ` + assignment.ProgramPath + ` run
`

// leases make the kubelet report that it is alive each second.
const leases = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nnodeLeaseDurationSeconds: 4\n"

// newRunningHost boots a host with the text "first", which its pool has.
func newRunningHost(ctx context.Context) *runningHost {
	GinkgoHelper()
	rack := newRack(ctx)
	h := &runningHost{pool: newHostPool(ctx, rack)}
	h.pool.policy = func(policy *update.Policy) {
		rule := func(actions ...update.Action) update.Rule { return update.Rule{Actions: actions, Reason: "a spec"} }
		policy.Paths["/opt"], policy.Paths["/etc/alternatives"] = rule(update.Action{Type: update.None}), rule(update.Action{Type: update.None})
		policy.Units["a.service"], policy.Units["b.service"] = rule(update.Action{Type: update.DaemonReload}), rule(update.Action{Type: update.DaemonReload})
		policy.Paths["/etc/drained"] = rule(update.Action{Type: update.Drain})
		policy.Paths["/etc/reloaded"] = rule(update.Action{Type: update.Reload, Unit: "web.service"})
	}
	h.pool.readyDeadlineSeconds = 90
	name := h.render(h.config("first"))
	h.Host = newHostWithUserData(rack, h.pool.node, baremetal.KubeletImage, h.pool.userData(name, h.pool.nodeCertificate))
	h.powerOn()
	waitForBoot(ctx, h.Host)
	h.expectDone(ctx, h.pool.assign(ctx, name), "first")
	return h
}

// powerOn boots the host, which runs longer than the spec.
func (h *runningHost) powerOn() {
	GinkgoHelper()
	Expect(h.PowerOn(context.Background())).To(Succeed())
}

// config returns a configuration with a text in its files and in the environment of a unit, and other files.
func (h *runningHost) config(text string, others ...map[string]any) map[string]any {
	web := unit("web.service", "[Unit]", "StartLimitIntervalSec=0", "[Service]", "Type=exec", "ExecStart=/bin/sleep infinity", "ExecReload=/bin/true",
		"Environment=TEXT="+text,
		"[Install]", "WantedBy=multi-user.target")
	return h.configWith(web, text, others...)
}

// configWith is config with another web.service.
func (h *runningHost) configWith(web map[string]any, text string, others ...map[string]any) map[string]any {
	agent := map[string]any{"name": assignment.AgentUnit, "dropins": []any{map[string]any{"name": "watcher.conf",
		"contents": "[Service]\nExecStartPre=-/bin/sh -c \"test ! -x " + assignment.PreviousProgramPath + " || exec " + assignment.PreviousProgramPath +
			" guard\"\nExecStopPost=-" + assignment.ProgramPath + " stopped\nExecStart=\nExecStart=/opt/agent-watcher\nRestartSec=200ms\n"}}}
	return map[string]any{
		"storage": files(append(others, file("/etc/none/f", 0o644, text), file("/etc/none/deep/er/f", 0o600, text),
			file("/opt/agent-watcher", 0o755, agentWatcher), file("/etc/kubernetes/kubelet.conf.d/10-leases.conf", 0o644, leases))...),
		"systemd": units(web, agent),
	}
}

// render renders a configuration, and returns its name.
func (h *runningHost) render(config map[string]any) string {
	GinkgoHelper()
	h.configs++
	name := fmt.Sprint("rendered-", h.configs)
	h.pool.render(name, config)
	return name
}

// assign assigns a configuration, and returns the revision.
func (h *runningHost) assign(ctx context.Context, config map[string]any) string {
	GinkgoHelper()
	return h.pool.assign(ctx, h.render(config))
}

// expectDone waits until the host reports a revision, and expects that the host has a text completely.
func (h *runningHost) expectDone(ctx context.Context, revision, text string) {
	GinkgoHelper()
	Eventually(ctx, h.pool.state(ctx)).WithTimeout(time.Minute).Should(Equal("Done " + revision))
	h.expectOnly(ctx, text)
}

// expectOnly expects that the host has a text completely, and that it reports no difference.
func (h *runningHost) expectOnly(ctx context.Context, text string) {
	GinkgoHelper()
	h.expectText(ctx, text)
	Expect(h.annotation(ctx, agentv1.DriftAnnotation)).To(BeEmpty())
}

// expectText expects that the files, the units and the processes of the host have a text.
func (h *runningHost) expectText(ctx context.Context, text string) {
	GinkgoHelper()
	Expect(h.Run(ctx, "sh", "-c", `cat /etc/none/f; echo; cat /etc/none/deep/er/f; echo
		systemctl show --property=Environment,NeedDaemonReload,ActiveState web.service | sort
		tr '\0' '\n' <"/proc/$(systemctl show --property=MainPID --value web.service)/environ" | grep TEXT`)).
		To(Equal(text + "\n" + text + "\nActiveState=active\nEnvironment=TEXT=" + text + "\nNeedDaemonReload=no\nTEXT=" + text + "\n"))
}

func (h *runningHost) annotation(ctx context.Context, name string) string {
	GinkgoHelper()
	node, err := h.pool.client.CoreV1().Nodes().Get(ctx, h.pool.node, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	return node.Annotations[name]
}

// reason returns what the host reports.
func (h *runningHost) reason(ctx context.Context) func() string {
	return func() string { return h.annotation(ctx, agentv1.ReasonAnnotation) }
}

// wake changes the Node, so that the agent does not wait until it tries again.
func (h *runningHost) wake(ctx context.Context) {
	GinkgoHelper()
	h.pool.annotate(ctx, "test/woken", strconv.FormatInt(time.Now().UnixNano(), 10))
}

// log returns the log of the agent since a cursor of the journal.
func (h *runningHost) log(ctx context.Context, cursor string) func() string {
	return func() string {
		entries, err := journalAfter(ctx, h.Host, cursor, "--unit="+assignment.AgentUnit)
		if err != nil {
			return err.Error()
		}
		log := ""
		for _, entry := range entries {
			log += fmt.Sprintln(entry.Message)
		}
		return log
	}
}

// systemctl controls the unit of the agent.
func (h *runningHost) systemctl(ctx context.Context, verb string) {
	GinkgoHelper()
	Expect(h.Run(ctx, strings.Fields("systemctl "+verb+" "+assignment.AgentUnit)...)).To(BeEmpty())
}

// These specs are about what can go wrong on a host. Each leaves the host as it was before: done.
var _ = Describe("A running host", Ordered, ContinueOnFailure, func() {
	var h *runningHost

	BeforeAll(func(ctx SpecContext) { h = newRunningHost(ctx) }, NodeTimeout(3*time.Minute))

	host := func() *runningHost { return h }
	describeServers(host)
	describeJournals(host)
	describeUnits(host)
	describeStops(host)
	describeFiles(host)
	describeUndo(host)
	describeInterruptions(host)
	describeKernelArguments(host)
	describeOtherAgents(host)
})

// describeJournals has the specs about the agent's own records.
func describeJournals(host func() *runningHost) {
	It("reports a damaged journal and changes nothing, until an administrator starts over", func(ctx SpecContext) {
		h, state := host(), "/var/lib/poolboot"
		h.expectDone(ctx, h.assign(ctx, h.config("before")), "before")
		h.systemctl(ctx, "stop")
		Expect(h.Run(ctx, "sed", "-i", "s/Idle/Draining/", state+"/agent/agent.journal")).To(BeEmpty())
		h.systemctl(ctx, "start")
		revision := h.assign(ctx, h.config("after"))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(time.Minute).Should(Equal("Degraded " + revision))
		Expect(h.reason(ctx)()).To(And(ContainSubstring(state+"/agent/agent.journal"), ContainSubstring("checksum"), ContainSubstring("move the journals and the slots")))
		Consistently(ctx, func() string { return readFile(ctx, h.Host, "/etc/none/f") }).WithTimeout(2 * time.Second).Should(Equal("before"))

		By("starting over")
		Expect(h.Run(ctx, "sh", "-c", "cd "+state+" && mkdir /root/damaged && mv agent files.journal slots /root/damaged/")).To(BeEmpty())
		h.systemctl(ctx, "restart")
		h.expectDone(ctx, revision, "after")
	}, SpecTimeout(2*time.Minute))

	It("follows a pool that changes ten times in a row, and ends with the last configuration", func(ctx SpecContext) {
		h := host()
		cursor, revision := journalCursor(ctx, h.Host), ""
		for i := range 10 {
			revision = h.assign(ctx, h.config(fmt.Sprint("change-", i)))
		}
		h.expectDone(ctx, revision, "change-9")
		log := h.log(ctx, cursor)()
		Expect(log).NotTo(ContainSubstring("undone"))
		AddReportEntry("updates for ten changes in a row", strings.Count(log, "to=Applying"))
	}, SpecTimeout(2*time.Minute))
}

// describeStops has the specs about hosts whose agent does not run while their kubelet does.
func describeStops(host func() *runningHost) {
	It("says on its Node whether the agent runs in this boot", func(ctx SpecContext) {
		h := host()
		runsIn := func(g Gomega) (agent, kubelet string) {
			node, err := h.pool.client.CoreV1().Nodes().Get(ctx, h.pool.node, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			return node.Annotations[agentv1.BootAnnotation], node.Status.NodeInfo.BootID
		}
		expectRuns := func() {
			GinkgoHelper()
			Eventually(func(g Gomega) {
				agent, kubelet := runsIn(g)
				g.Expect(agent).To(And(Equal(kubelet), Equal(h.BootID())))
			}).WithTimeout(time.Minute).Should(Succeed())
		}
		expectStopped := func() {
			GinkgoHelper()
			Eventually(func(g Gomega) string { agent, _ := runsIn(g); return agent }).WithTimeout(20 * time.Second).Should(Equal(agentv1.AgentStopped))
		}
		expectRuns()
		h.systemctl(ctx, "stop")
		expectStopped()
		h.systemctl(ctx, "start")
		expectRuns()
		By("killing it")
		h.systemctl(ctx, "kill --signal=KILL")
		expectStopped()
		expectRuns()
		By("rebooting without it")
		_, err := h.Run(ctx, "systemctl", "disable", assignment.AgentUnit)
		Expect(err).NotTo(HaveOccurred())
		previous := h.BootID()
		_, _ = h.Run(ctx, "systemctl", "reboot") // its connection can end first
		waitForAnotherBoot(ctx, h.Host, previous)
		Eventually(func(g Gomega) {
			agent, kubelet := runsIn(g)
			g.Expect([]string{agent, kubelet}).To(Equal([]string{previous, h.BootID()}), "the end of a boot is no stop")
		}).WithTimeout(time.Minute).Should(Succeed())
		_, err = h.Run(ctx, "systemctl", "enable", "--now", assignment.AgentUnit)
		Expect(err).NotTo(HaveOccurred())
		expectRuns()
	}, SpecTimeout(5*time.Minute))
}

// describeUnits has the specs about units of the configuration that an update starts and that fail, while the kubelet
// runs and the Node is Ready.
func describeUnits(host func() *runningHost) {
	DescribeTable("reports a unit that an update adds and that", func(ctx SpecContext, want string, lines ...string) {
		h := host()
		config := h.config("failing")
		systemd := config["systemd"].(map[string]any)
		systemd["units"] = append(systemd["units"].([]map[string]any), unit("added.service", append(lines, "[Install]", "WantedBy=multi-user.target")...))
		h.expectDone(ctx, h.assign(ctx, config), "failing")
		Eventually(ctx, func() string { return h.annotation(ctx, agentv1.FailingUnitsAnnotation) }).WithTimeout(time.Minute).Should(HavePrefix("added.service: " + want))
		h.expectDone(ctx, h.assign(ctx, h.config("without")), "without")
		Eventually(ctx, func() string { return h.annotation(ctx, agentv1.FailingUnitsAnnotation) }).WithTimeout(3 * time.Minute).Should(BeEmpty())
	},
		Entry("fails", "it failed: result exit-code, exit status 3", "[Service]", "ExecStart=/bin/sh -c 'sleep 1; exit 3'", SpecTimeout(5*time.Minute)),
		Entry("ends again and again after some seconds", "it ended, and systemd starts it again",
			"[Service]", "Restart=always", "ExecStart=/bin/sh -c 'sleep 4; exit 3'", SpecTimeout(5*time.Minute)),
	)

	It("starts one that failed with the file that it would reload", func(ctx SpecContext) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("reloaded", file("/etc/reloaded", 0o644, "before"))), "reloaded")
		Expect(h.Run(ctx, "systemctl", "kill", "--signal=KILL", "web.service")).To(BeEmpty())
		Eventually(ctx, func() string { return h.annotation(ctx, agentv1.FailingUnitsAnnotation) }).WithTimeout(time.Minute).Should(HavePrefix("web.service: it failed"))
		h.expectDone(ctx, h.assign(ctx, h.config("reloaded", file("/etc/reloaded", 0o644, "after"))), "reloaded")
		Expect(readFile(ctx, h.Host, "/etc/reloaded")).To(Equal("after"))
	}, SpecTimeout(2*time.Minute))
}
