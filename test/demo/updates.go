package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// infraMachines is the number of machines of the pool infra in the manifests.
const infraMachines = 2

// Files on the hosts of the pool infra.
const (
	configFile = "/etc/infratest.conf"
	// loadedFile is what infratest.service loaded from configFile at its last reload.
	loadedFile = "/run/infratest.loaded"
	// brokenFile is the drop-in with which the kubelet does not start.
	brokenFile = "/etc/systemd/system/kubelet.service.d/99-broken.conf"
)

// updates is the second act: the pool infra changes while its hosts run.
type updates struct {
	site    *site.Site
	history *site.NodeHistory
	hosts   []*runningHost
	began   time.Time
}

// runningHost is a host of the pool infra.
type runningHost struct {
	*baremetal.Host
	boot
	// said is the last state that was printed.
	said string
}

func newUpdates(s *site.Site, boots []boot, history *site.NodeHistory) *updates {
	u := &updates{site: s, history: history}
	for _, b := range boots {
		if b.wanted() == "infra" {
			u.hosts = append(u.hosts, &runningHost{Host: s.Hardware.Host(b.config.Status.HostRef.Name), boot: b})
		}
	}
	return u
}

// run changes the pool in every way, and returns the number of hosts that the first change reached.
func (u *updates) run(ctx context.Context) (updated int, err error) {
	if updated, err = u.reboot(ctx); err != nil {
		return updated, fmt.Errorf("a change with a reboot: %w", err)
	}
	if err := u.reload(ctx); err != nil {
		return updated, fmt.Errorf("a change without a reboot: %w", err)
	}
	if err := u.drift(ctx); err != nil {
		return updated, fmt.Errorf("a change by hand: %w", err)
	}
	if err := u.broken(ctx); err != nil {
		return updated, fmt.Errorf("a change that breaks the kubelet: %w", err)
	}
	return updated, nil
}

// reboot changes a file that no policy covers.
func (u *updates) reboot(ctx context.Context) (updated int, err error) {
	u.say("Second act: change a file of the pool infra while its two hosts run. One after the other is drained and reboots")
	before, reboots := u.rendered(), u.reboots()
	if err := kubectl(ctx, u.site, "apply", "4-change.yaml"); err != nil {
		return 0, err
	}
	if err := u.waitUntilUpdated(ctx, func(config string) bool { return config != before }); err != nil {
		return 0, err
	}
	for i, h := range u.hosts {
		content, err := h.ReadFile("/etc/infratest")
		if err != nil {
			return updated, err
		}
		times := u.reboots()[i] - reboots[i]
		fmt.Printf("  %s rebooted %d time, /etc/infratest is %q\n", h.Name(), times, content)
		updated += one(times == 1 && string(content) == "infra-2")
	}
	return updated, nil
}

// reload changes a file that the policy of the pool covers.
func (u *updates) reload(ctx context.Context) error {
	u.say("Change a file whose policy is to reload a service. No host reboots")
	before, reboots, services := u.rendered(), u.reboots(), u.services(ctx)
	if err := kubectl(ctx, u.site, "apply", "5-reload.yaml"); err != nil {
		return err
	}
	if err := u.waitUntilUpdated(ctx, func(config string) bool { return config != before }); err != nil {
		return err
	}
	for _, h := range u.hosts {
		loaded, err := h.ReadFile(loadedFile)
		if err != nil || string(loaded) != "second" {
			return fmt.Errorf("host %s: infratest.service did not reload: it has loaded %q, error %w", h.Name(), loaded, err)
		}
	}
	if !slices.Equal(u.reboots(), reboots) || !slices.Equal(u.services(ctx), services) {
		return errors.New("a host rebooted, or infratest.service was restarted")
	}
	fmt.Printf("  infratest.service of %d hosts loaded the new file, with the process that it had; no host rebooted\n", len(u.hosts))
	return nil
}

// drift changes a file on a host by hand. The policy of the pool is to repair.
func (u *updates) drift(ctx context.Context) error {
	h := u.hosts[0]
	u.say("Change a file on " + h.Name() + " by hand. The agent reports and corrects it")
	versions, changed := len(u.history.Of(h.node.Name)), time.Now()
	fmt.Printf("%s# echo by hand > %s\n", h.Name(), configFile)
	if _, err := h.Run(ctx, "sh", "-c", "echo by hand > "+configFile); err != nil {
		return err
	}
	var reported, corrected time.Duration
	var drift string
	err := u.wait(ctx, func() (bool, error) {
		for _, version := range u.history.Of(h.node.Name)[versions:] {
			if text := version.Node.Annotations[agentv1.DriftAnnotation]; text != "" && reported == 0 {
				drift, reported = text, version.Seen.Sub(changed)
			}
		}
		if content, err := h.ReadFile(configFile); err == nil && string(content) == "second" && corrected == 0 {
			corrected = time.Since(changed)
		}
		return reported > 0 && corrected > 0 && h.isUpdated(), nil
	})
	if err != nil {
		return fmt.Errorf("reported after %s: %q; corrected after %s: %w", reported, drift, corrected, err)
	}
	if !strings.Contains(drift, configFile) || strings.Contains(drift, "by hand") {
		return fmt.Errorf("the report must name %s, and not its content: %q", configFile, drift)
	}
	fmt.Printf("  reported after %.1f s: %q; corrected after %.1f s\n", reported.Seconds(), drift, corrected.Seconds())
	return nil
}

// broken adds a drop-in with which the kubelet does not start, and removes it when a host has returned to its previous
// configuration.
func (u *updates) broken(ctx context.Context) error {
	u.say("Add a drop-in with which the kubelet does not start. One host returns to its previous configuration by itself, and the other is spared")
	before := u.rendered()
	if err := kubectl(ctx, u.site, "apply", "6-broken.yaml"); err != nil {
		return err
	}
	var failed *runningHost
	err := u.wait(ctx, func() (bool, error) {
		for _, h := range u.hosts {
			condition := conditions.Get(&h.config, bootstrapv1.UpdatedCondition)
			if condition != nil && condition.Reason == string(agentv1.Degraded) && h.config.Status.Update.Desired.Name != before {
				failed = h
			}
		}
		return failed != nil && util.IsNodeReady(failed.node), nil
	})
	if err != nil {
		return err
	}
	if _, err := failed.Run(ctx, "test", "!", "-e", brokenFile); err != nil {
		return fmt.Errorf("the drop-in is still there: %w", err)
	}
	for _, h := range u.hosts {
		if h != failed && h.config.Status.Update.Desired.Name != before {
			return fmt.Errorf("host %s must not get the broken config, but it should run %s", h.Name(), h.config.Status.Update.Desired.Name)
		}
	}
	fmt.Printf("  %s runs its previous configuration, and its Node is Ready\n", failed.Name())

	u.say("Remove the drop-in from the pool. Nobody needs to do anything on a host")
	if err := kubectl(ctx, u.site, "delete", "6-broken.yaml"); err != nil {
		return err
	}
	return u.waitUntilUpdated(ctx, func(config string) bool { return config == before })
}

// say prints the headline of a step, and restarts the clock of its progress.
func (u *updates) say(headline string) {
	u.began = time.Now()
	fmt.Print("\n" + fill("==> ", headline))
}

// wait polls until done, and prints each new state of a host.
func (u *updates) wait(ctx context.Context, done func() (bool, error)) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, updateTimeout, true, func(ctx context.Context) (bool, error) {
		if err := u.read(ctx); err != nil {
			return false, err
		}
		for _, h := range u.hosts {
			if state := h.state(); state != "" && state != h.said {
				h.said = state
				fmt.Print(fill(fmt.Sprintf("  %5.1f s  %s  ", time.Since(u.began).Seconds(), h.Name()), state))
			}
		}
		return done()
	})
}

// waitUntilUpdated waits until the pool has rendered the config that is wanted, and all hosts run it and can get Pods.
func (u *updates) waitUntilUpdated(ctx context.Context, wanted func(config string) bool) error {
	return u.wait(ctx, func() (bool, error) {
		return !slices.ContainsFunc(u.hosts, func(h *runningHost) bool {
			return !wanted(h.config.Status.Boot.ServedConfiguration.Name) || !h.isUpdated() || site.IsAway(h.node)
		}), nil
	})
}

// read reads what is known about the hosts.
func (u *updates) read(ctx context.Context) error {
	boots, err := readBoots(ctx, u.site)
	if err != nil {
		return err
	}
	for _, h := range u.hosts {
		for _, b := range boots {
			if b.machine.Name == h.machine.Name && b.node != nil {
				h.boot = b
			}
		}
	}
	return nil
}

// rendered returns the config that the hosts run when all run the same.
func (u *updates) rendered() string { return u.hosts[0].config.Status.Boot.ServedConfiguration.Name }

// reboots returns how often each host has booted.
func (u *updates) reboots() (counts []int) {
	for _, h := range u.hosts {
		count := 0
		for _, event := range h.Events() {
			count += one(event.Step == baremetal.PoweredOn)
		}
		counts = append(counts, count)
	}
	return counts
}

// services returns the process of infratest.service on each host.
func (u *updates) services(ctx context.Context) (processes []string) {
	for _, h := range u.hosts {
		process, err := h.Run(ctx, "systemctl", "show", "--property=MainPID", "infratest.service")
		if err != nil {
			process = err.Error()
		}
		processes = append(processes, process)
	}
	return processes
}

// isUpdated reports whether the host runs what it should run.
func (h *runningHost) isUpdated() bool {
	return conditions.IsTrue(&h.config, bootstrapv1.UpdatedCondition)
}

// state says what the host does, in words of an operator. It is "" if there is nothing new to say.
func (h *runningHost) state() string {
	condition := conditions.Get(&h.config, bootstrapv1.UpdatedCondition)
	if condition == nil {
		return ""
	}
	switch condition.Reason {
	case bootstrapv1.UpdateDoneReason:
		return "runs " + h.config.Status.Boot.ServedConfiguration.Name
	case string(agentv1.Draining):
		return "its Node is cordoned, and its Pods are evicted"
	case string(agentv1.Applying):
		return "the agent changes files and units"
	case string(agentv1.Rebooting):
		return "reboots"
	case string(agentv1.Verifying):
		return "was changed; its Node must be Ready and stay so"
	case string(agentv1.Degraded), string(agentv1.Unreconcilable):
		message, _, _ := strings.Cut(condition.Message, "\n")
		return message
	}
	return ""
}
