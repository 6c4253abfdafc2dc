package hosts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// watchedUnits are the units that random configurations have or change.
var watchedUnits = []string{"a.service", "b.service", "c.service", "web.service", "fstrim.timer", ignition.KubeletUnit, "containerd.service"}

// withoutReboots is a policy with an action of each kind and no reboot.
func withoutReboots(policy *update.Policy) {
	rule := func(actions ...update.Action) update.Rule { return update.Rule{Actions: actions, Reason: "a spec"} }
	policy.Paths["/"] = rule(update.Action{Type: update.None})
	policy.Paths["/etc/restart"] = rule(update.Action{Type: update.Restart, Unit: "web.service"})
	policy.Paths["/etc/reload"] = rule(update.Action{Type: update.Reload, Unit: "web.service"})
	for _, unit := range []string{"a.service", "b.service", "c.service", "fstrim.timer"} {
		policy.Units[unit] = rule(update.Action{Type: update.DaemonReload})
	}
}

// randomConfig returns a configuration with entries of a small set, so that two configurations have many in common.
// The one that Ignition installs replaces no file of the image: nobody would know what to restore. The last one has
// another user and group, which is a reboot.
func randomConfig(chance *rand.Rand, isInstalled, isLast bool) map[string]any {
	isOneOf := func(n int) bool { return chance.IntN(n) == 0 }
	one := func(options ...string) string { return options[chance.IntN(len(options))] }
	owned := func(node map[string]any) map[string]any {
		switch chance.IntN(3) {
		case 0:
			node["user"], node["group"] = map[string]any{"id": 1 + chance.IntN(3)}, map[string]any{"id": 4}
		case 1:
			node["user"], node["group"] = map[string]any{"name": "edgeadmin"}, map[string]any{"name": "adm"}
		}
		return node
	}
	var written, directories, links []map[string]any
	for _, path := range []string{"/etc/none", "/etc/deep/er/file", "/etc/restart/f", "/etc/reload/f", "/etc/motd", "/opt/pool/program", "/etc/sudoers.d/pool"} {
		if !isOneOf(3) && (path != "/etc/motd" || !isInstalled) {
			mode := []int{0o600, 0o644, 0o755, 0o4750, 0o2711}[chance.IntN(5)]
			written = append(written, owned(file(path, mode, one("", "1\n", "2\n", strings.Repeat("long ", 1000)))))
		}
	}
	if !isOneOf(3) {
		written = append(written, file(ignition.PoolKubeletPath, 0o644,
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: "+one("100", "110")+"\n"))
	}
	for _, path := range []string{"/usr/local/lib/pool", "/etc/deep", "/srv/empty"} {
		if isOneOf(2) {
			directories = append(directories, owned(map[string]any{"path": path, "mode": []int{0o700, 0o755, 0o1777}[chance.IntN(3)]}))
		}
	}
	for _, path := range []string{"/etc/link", "/opt/links/l"} {
		if isOneOf(2) {
			links = append(links, map[string]any{"path": path, "target": one("/etc/motd", "../none"), "overwrite": true})
		}
	}
	if len(written) > 0 && isOneOf(2) {
		links = append(links, map[string]any{"path": "/etc/hard", "target": written[0]["path"], "hard": true, "overwrite": true})
	}
	all := []map[string]any{unit("web.service", "[Service]", "ExecStart=/bin/sleep infinity", "ExecReload=/bin/true", "Environment=TEXT="+one("1", "2", "3"),
		"[Install]", "WantedBy=multi-user.target")}
	for _, name := range []string{"a.service", "b.service", "c.service"} {
		if isOneOf(4) {
			continue
		}
		if isOneOf(4) {
			all = append(all, map[string]any{"name": name, "mask": true})
			continue
		}
		another := unit(name, "[Service]", "ExecStart=/bin/sleep infinity", "Environment=TEXT="+one("1", "2"), "[Install]", "WantedBy="+one("multi-user", "timers")+".target")
		another["enabled"] = isOneOf(2)
		if isOneOf(2) {
			another["dropins"] = []any{map[string]any{"name": one("10.conf", "20.conf"), "contents": "[Service]\nEnvironment=DROPIN=" + one("1", "2") + "\n"}}
		}
		all = append(all, another)
	}
	switch chance.IntN(3) {
	case 0:
		all = append(all, map[string]any{"name": "fstrim.timer", "mask": true})
	case 1:
		all = append(all, map[string]any{"name": "fstrim.timer", "dropins": []any{map[string]any{"name": "pool.conf", "contents": "[Timer]\nPersistent=" + one("yes", "no") + "\n"}}})
	}
	admin := map[string]any{"name": "edgeadmin", "passwordHash": "$6$of$" + one("one", "two")}
	if !isOneOf(3) {
		admin["sshAuthorizedKeys"] = []string{"ssh-ed25519 AAAA " + one("1", "2")}
	}
	passwd := map[string]any{"users": []map[string]any{admin}}
	if isLast {
		passwd["groups"] = []map[string]any{{"name": "operators", "gid": 3000}}
		passwd["users"] = []map[string]any{admin, {"name": "guest", "uid": 2000, "groups": []string{"operators"}, "shell": "/bin/sh"}}
	}
	return map[string]any{"passwd": passwd, "systemd": units(all...),
		"storage": map[string]any{"files": written, "directories": directories, "links": links}}
}

// ofOneHost are the paths below /etc that two hosts with the same configuration have otherwise: the ID of the host,
// Ignition's report with the time, the backups and locks of the tools for users, and Ignition's own file of the agent.
var ofOneHost = regexp.MustCompile(`^/etc/(machine-id|\.ignition-result\.json|(g?shadow|passwd|group|sub[ug]id)-|\.pwd\.lock|\.updated)$`)

// listing prints a line for each path in the directories that configurations write to, with type, mode, owner, number
// of names and target, and then the hashes of files.
const listing = `cd / && find /etc /opt /srv /home /root /usr/local -type l -printf '%p %y %l\n' -o -type d -printf '%p %y %m %U:%G\n' -o -printf '%p %y %m %U:%G\n' 2>/dev/null
find /etc /opt /srv /home /root /usr/local -type f -exec sha256sum {} + 2>/dev/null | while read -r sum path; do echo "$path contents $sum"; done; [ ! /etc/hard -ef /etc/none ] || echo /etc/hard is /etc/none; true`

// configuredState returns everything on a running host that its configuration decides: files, and the units as systemd
// sees them, by name.
func configuredState(ctx context.Context, h *baremetal.Host) map[string]string {
	GinkgoHelper()
	state := map[string]string{}
	listed, err := h.Run(ctx, "sh", "-c", listing)
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(listed) {
		path, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !ofOneHost.MatchString(path) {
			state[path] += rest + " "
		}
	}
	// Ignition leaves out lines that disable what the image does not enable. The agent writes them.
	state["/"+presets] = regexp.MustCompile(`(?m)^disable .*\n`).ReplaceAllString(readFile(ctx, h, "/"+presets), "")
	// The order of users and groups is that in which they were added.
	for _, path := range []string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"} {
		sorted, err := h.Run(ctx, "sort", path)
		Expect(err).NotTo(HaveOccurred())
		state[path] = sorted
	}
	installed, err := h.Run(ctx, "systemctl", "list-unit-files", "--no-legend", "--plain", "--full")
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(installed) {
		if fields := strings.Fields(line); len(fields) > 1 {
			state["unit "+fields[0]] = strings.Join(fields[1:], " ")
		}
	}
	for _, unit := range watchedUnits {
		properties, err := h.Run(ctx, "systemctl", "show", "--property=LoadState,UnitFileState,FragmentPath,DropInPaths,Environment,NeedDaemonReload", unit)
		Expect(err).NotTo(HaveOccurred())
		state["properties of "+unit] = properties
	}
	return state
}

// journalEntry is an entry of the journal of a host.
type journalEntry struct {
	Cursor  string `json:"__CURSOR"`
	Message any    `json:"MESSAGE"`
	ID      string `json:"MESSAGE_ID"`
	Unit    string `json:"UNIT"`
}

// journalAfter returns the entries after a cursor that match. journalctl --after-cursor always skips an entry that
// matches, also if it is not that of the cursor.
func journalAfter(ctx context.Context, h *baremetal.Host, cursor, match string) (entries []journalEntry, _ error) {
	output, err := h.Run(ctx, "journalctl", "--output=json", "--output-fields=MESSAGE,MESSAGE_ID,UNIT", "--cursor="+cursor, match)
	for line := range strings.Lines(output) {
		var entry journalEntry
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return nil, err
		}
		if entry.Cursor != cursor {
			entries = append(entries, entry)
		}
	}
	return entries, err
}

// happenings are what systemd did with units since a cursor of its journal, such as "Restart web.service".
func happenings(ctx context.Context, h *baremetal.Host, cursor string) []string {
	GinkgoHelper()
	// From systemd's catalog of messages.
	const started, stopped, reloaded = "39f53479d3a045ac8e11786248231fbf", "9d1aaa27d60140bd96365438aad20286", "7b05ebc668384222baa8881179cfda54"
	entries, err := journalAfter(ctx, h, cursor, "_PID=1")
	Expect(err).NotTo(HaveOccurred())
	happened, stops := map[string]bool{}, map[string]bool{}
	for _, entry := range entries {
		text, _ := entry.Message.(string)
		switch {
		case entry.Unit == "" && strings.HasPrefix(text, "Reloading"):
			happened["DaemonReload"] = true
		case !slices.Contains(watchedUnits, entry.Unit):
		case entry.ID == reloaded:
			happened["Reload "+entry.Unit] = true
		case entry.ID == stopped:
			stops[entry.Unit] = true
		case entry.ID == started && stops[entry.Unit]:
			delete(stops, entry.Unit)
			happened["Restart "+entry.Unit] = true
		case entry.ID == started:
			happened["Start "+entry.Unit] = true
		}
	}
	for unit := range stops {
		happened["Stop "+unit] = true
	}
	return slices.Sorted(maps.Keys(happened))
}

// journalCursor returns the end of the journal.
func journalCursor(ctx context.Context, h *baremetal.Host) string {
	GinkgoHelper()
	output, err := h.Run(ctx, "journalctl", "--lines=0", "--show-cursor", "--quiet")
	Expect(err).NotTo(HaveOccurred())
	_, cursor, found := strings.Cut(strings.TrimSpace(output), "cursor: ")
	Expect(found).To(BeTrue(), output)
	return cursor
}

// predicted returns what the plan of an update says that systemd does, and whether the host reboots. active are the
// units that are active before.
func (p *hostPool) predicted(before, after string, active []string) (actions []string, reboots bool) {
	GinkgoHelper()
	parse := func(name string) update.Config {
		_, config, err := update.ParseServed(p.rendered[name])
		Expect(err).NotTo(HaveOccurred())
		return config
	}
	from, to := parse(before), parse(after)
	plan := update.New(from, to, p.effectivePolicy(), update.Capabilities{})
	Expect(plan.Obstacles).To(BeEmpty())
	expected := map[string]bool{}
	for _, action := range plan.Actions {
		if action.Type != update.None {
			expected[action.String()] = true
		}
	}
	if len(plan.Stop)+len(plan.Start) > 0 {
		expected["DaemonReload"] = true
	}
	for _, unit := range active {
		if slices.Contains(plan.Stop, unit) || slices.Contains(plan.Stop, hosttree.TemplateOf(unit)) {
			expected["Stop "+unit] = true
		}
	}
	for _, unit := range plan.Start {
		if slices.Contains(watchedUnits, unit) && !slices.Contains(active, unit) {
			delete(expected, "Restart "+unit) // it does not run yet
			expected["Start "+unit] = true
		}
	}
	return slices.Sorted(maps.Keys(expected)), plan.Reboots()
}

func activeUnits(ctx context.Context, h *baremetal.Host) (active []string) {
	for _, unit := range watchedUnits {
		if state, _ := h.Run(ctx, "systemctl", "is-active", unit); state == "active\n" { // it fails for the others
			active = append(active, unit)
		}
	}
	return active
}

var _ = Describe("A host that was updated", func() {
	It("equals a host that was installed with the same configuration, and did exactly what its plans predicted", func(ctx SpecContext) {
		quietUpdates := hostRounds(3)
		rack := newRack(ctx)
		p := newHostPool(ctx, rack)
		p.policy, p.readyDeadlineSeconds = withoutReboots, 90
		chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		name := func(i int) string { return fmt.Sprintf("rendered-%d", i) }
		for i := range quietUpdates + 2 {
			p.render(name(i), randomConfig(chance, i == 0, i > quietUpdates))
		}
		updated := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, p.userData(name(0), p.nodeCertificate))
		Expect(updated.PowerOn(ctx)).To(Succeed())
		boot := waitForBoot(ctx, updated)
		revision := p.assign(ctx, name(0))
		Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))
		fresh := newHostWithUserData(rack, "host-1", baremetal.KubeletImage, nil)

		for i := 1; i <= quietUpdates+1; i++ {
			By(fmt.Sprintf("updating to configuration %d with seed %d: %s", i, GinkgoRandomSeed(), p.rendered[name(i)]))
			if i > quietUpdates {
				p.policy = nil
			}
			active := activeUnits(ctx, updated)
			expected, reboots := p.predicted(name(i-1), name(i), active)
			cursor := journalCursor(ctx, updated)
			revision = p.assign(ctx, name(i))
			Expect(fresh.Deploy(baremetal.KubeletImage, p.userData(name(i)))).To(Succeed())
			Expect(fresh.PowerOn(ctx)).To(Succeed())
			Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))
			now := waitForBoot(ctx, updated)
			waitForBoot(ctx, fresh)

			Expect(now != boot).To(Equal(reboots), "the boot")
			if !reboots {
				Expect(happenings(ctx, updated, cursor)).To(Equal(expected))
			} else {
				Expect(activeUnits(ctx, updated)).To(Equal(activeUnits(ctx, fresh)))
			}
			boot = now
			Expect(differences(configuredState(ctx, fresh), configuredState(ctx, updated))).To(BeEmpty(), "update %d", i)
			AddReportEntry(fmt.Sprintf("update %d", i), fmt.Sprintf("%v, reboots: %t", expected, reboots))
			Expect(fresh.PowerCut()).To(Succeed())
		}
	}, SpecTimeout(6*time.Minute))
})
