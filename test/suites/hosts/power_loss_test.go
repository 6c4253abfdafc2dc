package hosts_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// wholeConfig returns a configuration with all kinds of entries that Ignition writes in its files stage. One of its
// files is downloaded while the files are written: Ignition begins with the shortest paths.
func wholeConfig(downloaded string) map[string]any {
	root, ops := map[string]any{"name": "root"}, map[string]any{"name": "ops"}
	written := []map[string]any{
		file("/etc/sysctl.d/90-pool.conf", 0o644, "net.ipv4.ip_default_ttl = 65\n"),
		{"path": "/opt/program", "mode": 0o755, "user": ops, "group": root, "overwrite": true, "contents": map[string]any{"source": dataURL("#!/bin/sh\n")}},
		{"path": "/etc/pool/downloaded", "mode": 0o640, "overwrite": true, "contents": map[string]any{"source": downloaded}},
	}
	for i := range 50 {
		written = append(written, file(fmt.Sprintf("/etc/before-%02d", i), 0o600+i, strings.Repeat("before ", 1000)),
			file(fmt.Sprintf("/etc/pool/after/%02d", i), 0o600+i, strings.Repeat("after ", 1000)))
	}
	return map[string]any{
		"passwd": map[string]any{
			"groups": []any{map[string]any{"name": "operators", "gid": 3000}},
			"users": []any{map[string]any{"name": "ops", "uid": 2000, "groups": []any{"operators"}, "passwordHash": "$6$of$ops",
				"sshAuthorizedKeys": []any{"ssh-ed25519 AAAA ops"}}},
		},
		"storage": map[string]any{
			"files":       written,
			"directories": []any{map[string]any{"path": "/var/lib/pool", "mode": 0o750, "user": ops}},
			"links":       []any{map[string]any{"path": "/etc/link", "target": "/opt/program"}, map[string]any{"path": "/opt/hard", "target": "/opt/program", "hard": true}},
		},
		"systemd": units(
			unit("pool.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/usr/bin/touch /run/pool", "[Install]", "WantedBy=multi-user.target"),
			map[string]any{"name": "containerd.service", "dropins": []any{map[string]any{"name": "pool.conf", "contents": "[Service]\nEnvironment=POOL=infra\n"}}},
			map[string]any{"name": "fstrim.timer", "mask": true}),
	}
}

// volatile are the paths that differ between two hosts with the same configuration, or that show that Ignition has
// started over: journals, what systemd makes from random bytes, Ignition's report with the time, the backups of the
// tools for users, and temporary files of Ignition, which it does not remove when it starts over.
var volatile = regexp.MustCompile(`^(var/log/journal|var/lib/systemd/random-seed|etc/\.ignition-result\.json|etc/g?(shadow|passwd|group)-)|/tmp[0-9]+$`)

// presets is the file in which Ignition enables units. It adds the same lines each time when it starts over.
const presets = "etc/systemd/system-preset/20-ignition.preset"

// tree returns a line for each file that was written to a host's disk since it was deployed, with its mode, owner and
// content. The host is off.
func tree(h *baremetal.Host) map[string]string {
	GinkgoHelper()
	disk, err := h.Disk()
	Expect(err).NotTo(HaveOccurred())
	defer disk.Close()
	entries := map[string]string{}
	Expect(fs.WalkDir(disk.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || volatile.MatchString(path) {
			return err
		}
		info, err := disk.Lstat(path)
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		content := ""
		switch info.Mode().Type() {
		case 0:
			raw, err := disk.ReadFile(path)
			if err != nil {
				return err
			}
			if path == presets {
				lines := strings.Split(string(raw), "\n")
				slices.Sort(lines)
				raw = []byte(strings.Join(slices.Compact(lines), "\n"))
			}
			content = fmt.Sprintf("%x", sha256.Sum256(raw))
			if len(raw) < 200 {
				content = fmt.Sprintf("%q", raw)
			}
		case fs.ModeSymlink:
			if content, err = disk.Readlink(path); err != nil {
				return err
			}
		}
		entries[path] = fmt.Sprintf("%s %d:%d %s", info.Mode(), stat.Uid, stat.Gid, content)
		return nil
	})).To(Succeed())
	return entries
}

// differences returns a line for each file that differs in two trees.
func differences(want, got map[string]string) (lines []string) {
	for path, entry := range want {
		if got[path] != entry {
			lines = append(lines, fmt.Sprintf("%s: %q instead of %q", path, got[path], entry))
		}
	}
	for path, entry := range got {
		if _, ok := want[path]; !ok {
			lines = append(lines, fmt.Sprintf("%s: %q is new", path, entry))
		}
	}
	slices.Sort(lines)
	return lines
}

// printed returns the number of lines on a host's console.
func printed(h *baremetal.Host) int {
	text, _ := h.Console()
	return strings.Count(text, "\n")
}

var _ = Describe("A power loss during the first boot", func() {
	It("does not change what the host is in the end, in every stage and at random moments", func(ctx SpecContext) {
		rack := newRack(ctx)
		var holds atomic.Bool
		var waiting atomic.Int32
		server := newServer(ctx, rack.Address(), func(w http.ResponseWriter, r *http.Request) {
			if holds.Load() {
				waiting.Add(1)
				<-r.Context().Done()
				return
			}
			_, _ = w.Write([]byte("downloaded"))
		})
		server.Start()
		userData := servedTo("infra", machineConfig("00-whole", "infra", wholeConfig(server.URL)))

		whole := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, userData)
		Expect(whole.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, whole)
		lines := printed(whole)
		Expect(whole.PowerOff(ctx)).To(Succeed())
		want := tree(whole)

		cut := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, userData)
		for _, step := range []baremetal.Step{baremetal.IgnitionStarted, baremetal.ConfigFetched} {
			Expect(cut.PowerOnUntil(ctx, step)).To(Succeed())
		}
		By("cutting the power while Ignition writes files")
		holds.Store(true)
		Expect(cut.PowerOn(ctx)).To(Succeed())
		Eventually(waiting.Load).Should(BeNumerically(">", 0))
		Expect(cut.PowerCut()).To(Succeed())
		holds.Store(false)
		half := tree(cut)
		Expect(half).To(HaveKey("etc/before-49"))
		Expect(half).NotTo(HaveKey("etc/pool/after/00"))
		Expect(count(cut, baremetal.UnitsStarted)).To(BeZero())
		for _, step := range []baremetal.Step{baremetal.FilesWritten, baremetal.UnitsStarted} {
			Expect(cut.PowerOnUntil(ctx, step)).To(Succeed())
		}

		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		moments := make([]int, 10)
		for i := range moments {
			moments[i] = 1 + random.IntN(lines)
		}
		slices.Sort(moments) // the first boot is over after a late one
		for _, moment := range moments {
			By(fmt.Sprintf("cutting the power after %d of %d lines on the console", moment, lines))
			before := printed(cut)
			Expect(cut.PowerOn(ctx)).To(Succeed())
			Eventually(func() bool {
				if printed(cut) >= before+moment {
					return true
				}
				active, _ := cut.Run(ctx, "systemctl", "is-active", "multi-user.target") // a boot without Ignition prints less
				return active == "active\n"
			}).WithPolling(10 * time.Millisecond).Should(BeTrue())
			Expect(cut.PowerCut()).To(Succeed())
		}
		Expect(cut.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, cut)
		Expect(cut.Run(ctx, "systemctl", "list-units", "--failed", "--plain", "--no-legend")).To(BeEmpty())
		Expect(cut.Run(ctx, "systemctl", "is-active", "pool.service")).To(Equal("active\n"))
		Expect(cut.PowerOff(ctx)).To(Succeed())
		AddReportEntry("boots", fmt.Sprintf("%d, of which %d ran Ignition", count(cut, baremetal.PoweredOn), count(cut, baremetal.IgnitionStarted)))
		Expect(differences(want, tree(cut))).To(BeEmpty())
	}, SpecTimeout(8*time.Minute))
})
