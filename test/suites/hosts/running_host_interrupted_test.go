package hosts_test

import (
	"context"
	"crypto/sha512"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// roundsVariable is an environment variable with the number of rounds of specs that try random moments or random
// configurations on a host, for more than a run in CI has.
const roundsVariable = "HOST_ROUNDS"

// hostRounds returns the number of rounds.
func hostRounds(otherwise int) int {
	GinkgoHelper()
	text, isSet := os.LookupEnv(roundsVariable)
	if !isSet {
		return otherwise
	}
	number, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), roundsVariable)
	return number
}

// moments returns some of the numbers from 1, at random.
func moments(all, most int) []int {
	chosen := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)).Perm(all)[:min(all, most)]
	for i := range chosen {
		chosen[i]++
	}
	return chosen
}

// describeInterruptions has the specs about agents that are killed and hosts that lose power.
func describeInterruptions(host func() *runningHost) {
	// stopAfter makes the watcher of the agent send a signal after a number of steps.
	stopAfter := func(ctx context.Context, number int, signal string) {
		GinkgoHelper()
		writeFile(ctx, host().Host, "/var/lib/watched", "")
		writeFile(ctx, host().Host, "/var/lib/watcher", fmt.Sprintf("%s %d\n", signal, number))
	}
	// reached returns the step after which the watcher sent its signal.
	reached := func(ctx context.Context) string {
		return strings.TrimSpace(readFile(ctx, host().Host, "/var/lib/watched"))
	}
	texts := [2]string{"a", "b"}
	// two configurations differ in all kinds of entries, and their updates need a drain, restarts, and perhaps a
	// reboot.
	two := func(h *runningHost, reboots bool) (names [2]string) {
		for i, text := range texts {
			path := map[bool]string{false: "/opt/f", true: "/etc/reboots"}[reboots]
			config := h.config(text, file("/etc/drained/f", 0o644, text), file("/opt/only-"+text, 0o600, text), file(path, 0o644, text))
			config["passwd"] = map[string]any{"users": []map[string]any{{"name": "edgeadmin", "passwordHash": "$6$of$" + text}}}
			other := unit(text+".service", "[Service]", "ExecStart=/bin/sleep infinity", "[Install]", "WantedBy=multi-user.target")
			config["systemd"].(map[string]any)["units"] = append(config["systemd"].(map[string]any)["units"].([]map[string]any), other)
			names[i] = h.render(config)
		}
		return names
	}
	// steps counts the steps in a log.
	steps := func(log string) int {
		return strings.Count(log, "msg=phase") + strings.Count(log, "msg=operation") + strings.Count(log, "msg=action")
	}
	// states returns what two configurations make of the host, which has the second one afterwards, and the number of
	// steps of its update.
	states := func(ctx context.Context, names [2]string) (states [2]map[string]string, length int) {
		GinkgoHelper()
		h := host()
		for i := range names {
			cursor := journalCursor(ctx, h.Host)
			h.expectDone(ctx, h.pool.assign(ctx, names[i]), texts[i])
			states[i], length = configuredState(ctx, h.Host), steps(h.log(ctx, cursor)())
		}
		return states, length
	}

	It("has its old or its new configuration completely, whenever its agent is killed", func(ctx SpecContext) {
		h := host()
		names := two(h, false)
		states, length := states(ctx, names)
		now := 0
		var killed []string
		for _, number := range moments(length-2, hostRounds(4)) {
			stopAfter(ctx, number, "KILL")
			h.expectDone(ctx, h.pool.assign(ctx, names[now]), texts[now])
			Expect(reached(ctx)).NotTo(BeEmpty())
			Expect(differences(states[now], configuredState(ctx, h.Host))).To(BeEmpty(), "killed after step %d: %s", number, reached(ctx))
			killed = append(killed, reached(ctx))
			now = 1 - now
		}
		AddReportEntry("the agent was killed after", strings.Join(killed, "\n"))
	}, SpecTimeout(4*time.Minute))

	It("has its old or its new configuration completely after a power loss", func(ctx SpecContext) {
		h := host()
		names := two(h, true)
		states, length := states(ctx, names)
		now := 0
		var cuts []string
		for _, number := range moments(length-2, hostRounds(2)) {
			stopAfter(ctx, number, "STOP")
			revision := h.pool.assign(ctx, names[now])
			Eventually(ctx, func() string { _ = h.pool.state(ctx)(); return reached(ctx) }).ShouldNot(BeEmpty())
			cuts = append(cuts, reached(ctx))
			Expect(h.PowerCut()).To(Succeed())
			h.powerOn()
			waitForBoot(ctx, h.Host)
			Eventually(ctx, h.pool.state(ctx)).Should(Equal("Done " + revision))
			h.expectOnly(ctx, texts[now])
			Expect(differences(states[now], configuredState(ctx, h.Host))).To(BeEmpty(), "power loss after step %d: %s", number, cuts[len(cuts)-1])
			now = 1 - now
		}
		AddReportEntry("the power was lost after", strings.Join(cuts, "\n"))
	}, SpecTimeout(10*time.Minute))
}

// describeKernelArguments has the specs about arguments that a program of the host changes.
func describeKernelArguments(host func() *runningHost) {
	It("gets kernel arguments with a reboot, and returns if it boots without them", func(ctx SpecContext) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("before")), "before")
		h.pool.kernelArguments = []string{"audit=1", "mitigations=off"}
		revision := h.assign(ctx, h.config("after"))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Done " + revision))
		h.expectOnly(ctx, "after")
		Expect(readFile(ctx, h.Host, "/proc/cmdline")).To(HaveSuffix(" quiet audit=1 mitigations=off\n"))

		By("booting with a boot loader that ignores them")
		writeFile(ctx, h.Host, "/boot/is-broken", "")
		h.pool.kernelArguments = []string{"audit=1", "debug"}
		began := time.Now()
		revision = h.assign(ctx, h.config("ignored"))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Degraded " + revision))
		AddReportEntry("until the host was as before", fmt.Sprintf("%.0f s", time.Since(began).Seconds()))
		Expect(h.reason(ctx)()).To(ContainSubstring("booted without the kernel arguments audit=1 debug"))
		h.expectText(ctx, "after")
		Expect(readFile(ctx, h.Host, "/boot/kernel-arguments.cfg")).To(Equal("set kernel_arguments='quiet audit=1 mitigations=off'\n"))
		Expect(h.annotation(ctx, agentv1.DriftAnnotation)).To(ContainSubstring("audit=1: MissingKernelArgument"))

		By("repairing the boot loader")
		Expect(h.Run(ctx, "rm", "/boot/is-broken")).To(BeEmpty())
		h.pool.kernelArguments = nil
		revision = h.assign(ctx, h.config("repaired"))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Done " + revision))
		h.expectOnly(ctx, "repaired")
		Expect(readFile(ctx, h.Host, "/proc/cmdline")).To(HaveSuffix(" quiet\n"))
	}, SpecTimeout(8*time.Minute))
}

// describeOtherAgents has the specs about other versions of the agent.
func describeOtherAgents(host func() *runningHost) {
	// offer offers a program as a version, to hosts that run the oldest one or a newer one.
	offer := func(program []byte, version, oldest string) (sum string) {
		p := host().pool
		p.mu.Lock()
		defer p.mu.Unlock()
		sum = fmt.Sprintf("%x", sha512.Sum512(program))
		p.program, p.offer = program, &assignment.Agent{Version: version, Oldest: oldest, SHA512: map[string]string{runtime.GOARCH: sum}}
		return sum
	}
	installed := func(ctx context.Context) func() string {
		return func() string {
			output, _ := host().Run(ctx, "sha512sum", assignment.ProgramPath)
			sum, _, _ := strings.Cut(output, " ")
			return sum
		}
	}
	var own string

	It("replaces its agent by another version, verified, which goes on", func(ctx SpecContext) {
		h := host()
		program, err := os.ReadFile(agentProgram)
		Expect(err).NotTo(HaveOccurred())
		By("offering it with contents that are not those of the hash")
		offer(append(slices.Clone(program), "damaged"...), "v99.0.0", "v0.0.1")
		h.pool.program = program
		before := installed(ctx)()
		h.assign(ctx, h.config("damaged"))
		Eventually(ctx, h.reason(ctx)).WithTimeout(30 * time.Second).Should(ContainSubstring("has another SHA-512"))
		Expect(installed(ctx)()).To(Equal(before))

		By("offering it")
		want := offer(append(slices.Clone(program), "another build"...), "v99.0.0", "v0.0.1")
		revision := h.assign(ctx, h.config("other"))
		h.expectDone(ctx, revision, "other")
		Expect(installed(ctx)()).To(Equal(want))
		Expect(h.Run(ctx, "sh", "-c", "ls /var/lib/poolboot/bin")).To(Equal("poolboot-agent\n"), "the previous one is not needed any more")
		own = want
	}, SpecTimeout(2*time.Minute))

	DescribeTable("keeps its agent", func(ctx SpecContext, contents, version, oldest, why string) {
		h := host()
		cursor := journalCursor(ctx, h.Host)
		offer([]byte(contents), version, oldest)
		text := "not-" + version
		h.expectDone(ctx, h.assign(ctx, h.config(text)), text)
		Expect(installed(ctx)()).To(Equal(own))
		Expect(h.log(ctx, cursor)()).To(ContainSubstring(why))
	},
		Entry("if an older version is offered", "older", "v0.0.1", "v0.0.1", "is older than", SpecTimeout(time.Minute)),
		Entry("if a version below the oldest one is offered", "below", "v99.0.0", "v99.1.0", "the oldest one that hosts may run", SpecTimeout(time.Minute)),
		Entry("if the other one does not work on this host", "#!/bin/sh\nexit 3\n", "v99.2.0", "v0.0.1", "exit status 3", SpecTimeout(time.Minute)),
	)

	DescribeTable("returns to its previous agent", func(ctx SpecContext, version string, program func(own []byte) []byte) {
		h := host()
		cursor := journalCursor(ctx, h.Host)
		running, err := os.ReadFile(agentProgram)
		Expect(err).NotTo(HaveOccurred())
		offer(program(running), version, "v0.0.1")
		h.expectDone(ctx, h.assign(ctx, h.config(version)), version)
		Expect(installed(ctx)()).To(Equal(own))
		Expect(h.log(ctx, cursor)()).To(And(ContainSubstring("the program was replaced"), ContainSubstring("did not come up")))
	},
		Entry("if the other one is killed whenever it has started", "v99.3.0", func(own []byte) []byte { return append(own, crashes...) }, SpecTimeout(time.Minute)),
		Entry("if the other one ends before it can count its starts", "v99.4.0", func([]byte) []byte {
			return []byte("#!/bin/sh\n[ $1 = check ]\n")
		}, SpecTimeout(time.Minute)),
	)
}
