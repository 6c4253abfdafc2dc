package hosts_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// describeUndo has the specs about updates that fail and whose entries can't simply be taken back.
func describeUndo(host func() *runningHost) {
	none := func(context.Context, *runningHost) {}
	// prints returns a check that a command of the host prints a text.
	prints := func(text, script string) func(context.Context, *runningHost) {
		return func(ctx context.Context, h *runningHost) {
			GinkgoHelper()
			Expect(h.Run(ctx, "sh", "-c", script)).To(Equal(text))
		}
	}

	DescribeTable("returns to what it had from an update that fails", func(ctx SpecContext, added map[string]any, user map[string]any, isRestored func(context.Context, *runningHost)) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("before")), "before")
		web := unit("web.service", "[Unit]", "StartLimitIntervalSec=0", "[Service]", "Type=exec", "ExecStartPre=/bin/false", "ExecStart=/bin/sleep infinity", "Environment=TEXT=after",
			"[Install]", "WantedBy=multi-user.target")
		config := h.configWith(web, "after")
		systemd := config["systemd"].(map[string]any)
		systemd["units"] = append(systemd["units"].([]map[string]any), added)
		if user != nil {
			config["passwd"] = map[string]any{"users": []map[string]any{user}}
		}
		usual := h.pool.readyDeadlineSeconds
		h.pool.readyDeadlineSeconds = 30
		DeferCleanup(func() { h.pool.readyDeadlineSeconds = usual })
		began := time.Now()
		revision := h.assign(ctx, config)
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Degraded " + revision))
		AddReportEntry("until the host was as before", fmt.Sprintf("%.0f s", time.Since(began).Seconds()))
		h.expectOnly(ctx, "before")
		isRestored(ctx, h)
	},
		Entry("and adds a unit that systemctl can't enable",
			unit("a.service", "[Service]", "ExecStart=/bin/sleep infinity", "[Install]", "Also=other", "WantedBy=multi-user.target"), nil,
			prints("inactive\n", "systemctl is-active a.service || true"), SpecTimeout(4*time.Minute)),
		Entry("and adds a service", unit("a.service", "[Service]", "ExecStart=/bin/sleep infinity", "[Install]", "WantedBy=multi-user.target"), nil,
			prints("inactive\n", "systemctl is-active a.service || true"), SpecTimeout(4*time.Minute)),
		Entry("and adds a user and a service that runs as this user",
			unit("a.service", "[Service]", "User=app", "ExecStart=/bin/sleep infinity", "[Install]", "WantedBy=multi-user.target"), map[string]any{"name": "app"},
			prints("no user\n", "id -u app 2>/dev/null || echo no user"), SpecTimeout(4*time.Minute)),
		Entry("and mounts something over a file of the configuration, which takes a reboot",
			unit("a.service", "[Unit]", "Before=web.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/bin/mount --bind /etc/hostname /etc/none/f", "[Install]", "WantedBy=multi-user.target"), nil,
			none, SpecTimeout(6*time.Minute)),
		Entry("and adds a user who moves the directory of the SSH keys, links to it, and makes a file of 1 PiB",
			unit("a.service", "[Service]", "User=app", `ExecStart=/bin/sh -ec "cd && mv .ssh ssh && ln -s ssh .ssh && truncate -s 1P big; exec sleep infinity"`, "[Install]", "WantedBy=multi-user.target"),
			map[string]any{"name": "app", "sshAuthorizedKeys": []string{"ssh-ed25519 AAAA"}},
			prints("no user\n", "id -u app 2>/dev/null || echo no user"), SpecTimeout(6*time.Minute)),
		Entry("and adds a user whose home exists and belongs to root, which takes a reboot, after which the kubelet does not start",
			map[string]any{"name": ignition.KubeletUnit, "dropins": []map[string]any{{"name": "broken.conf", "contents": "[Service]\nExecStartPre=/bin/false\n"}}},
			map[string]any{"name": "app", "homeDir": "/opt"},
			prints("no user, root\n", "echo $(id -u app 2>/dev/null || echo no user), $(stat -c %U /opt)"), SpecTimeout(6*time.Minute)),
	)
	It("gives back what entries replaced in the image, when they end and when that is undone", func(ctx SpecContext) {
		h := host()
		const link = "/etc/alternatives/iptables"
		ofImage, err := h.Run(ctx, "readlink", link)
		Expect(err).NotTo(HaveOccurred())
		replacing := func(text string) map[string]any {
			config := h.config(text)
			config["storage"].(map[string]any)["links"] = []map[string]any{{"path": link, "target": "/bin/true", "overwrite": true}}
			return config
		}
		h.expectDone(ctx, h.assign(ctx, replacing("replaced")), "replaced")
		Expect(h.Run(ctx, "readlink", link)).To(Equal("/bin/true\n"))
		h.expectDone(ctx, h.assign(ctx, h.config("ended")), "ended")
		Expect(h.Run(ctx, "readlink", link)).To(Equal(ofImage))

		By("undoing the end of the entry")
		h.expectDone(ctx, h.assign(ctx, replacing("replaced")), "replaced")
		broken := h.configWith(unit("web.service", "[Unit]", "StartLimitIntervalSec=0", "[Service]", "Type=exec", "ExecStartPre=/bin/false", "ExecStart=/bin/sleep infinity", "Environment=TEXT=broken",
			"[Install]", "WantedBy=multi-user.target"), "broken")
		began := time.Now()
		revision := h.assign(ctx, broken)
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Degraded " + revision))
		AddReportEntry("until the host was as before", fmt.Sprintf("%.0f s", time.Since(began).Seconds()))
		h.expectOnly(ctx, "replaced")
		Expect(h.Run(ctx, "readlink", link)).To(Equal("/bin/true\n"))
		h.expectDone(ctx, h.assign(ctx, h.config("ended")), "ended")
		Expect(h.Run(ctx, "readlink", link)).To(Equal(ofImage))
	}, SpecTimeout(8*time.Minute))
}
