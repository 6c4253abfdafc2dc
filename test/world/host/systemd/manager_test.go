package systemd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// changes collects the callbacks of a manager.
type changes struct {
	mu   sync.Mutex
	seen []string
}

func (c *changes) add(unit string, state State, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := unit + " " + string(state)
	if err != nil {
		text += " " + err.Error()
	}
	c.seen = append(c.seen, text)
}

func (c *changes) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.seen...)
}

// boot runs the units in root until the end of the spec. Their programs get the root as $ROOT.
func boot(root string) *changes {
	told := &changes{}
	manager := &Manager{
		Root: root,
		Command: func(ctx context.Context, _ string, argv, env []string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = slices.Concat(env, []string{"ROOT=" + root})
			cmd.WaitDelay = time.Second
			return cmd
		},
		Run: func(cmd *exec.Cmd, started func()) error {
			if err := cmd.Start(); err != nil {
				return err
			}
			started()
			return cmd.Wait()
		},
		Started: func(string, []string) {},
		Changed: told.add,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Boot(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
	})
	return told
}

// wanted is a unit file that a boot starts.
func wanted(section, text string) string {
	return "[Unit]\n" + section + "[Service]\n" + text + "[Install]\nWantedBy=multi-user.target\n"
}

const enableAll = "etc/systemd/system-preset/10-all.preset"

var _ = Describe("A boot", func() {
	It("starts units in order, and waits for oneshots", func() {
		root := rootWith(map[string]string{
			enableAll:         "enable *\n",
			etc + "b.service": wanted("", "Type=oneshot\nExecStart=/bin/sh -c 'sleep 0.2; echo b >>$$ROOT/log'\n"),
			etc + "a.service": wanted("After=b.service\n", "Type=oneshot\nExecStart=/bin/sh -c 'echo a >>$$ROOT/log'\n"),
			etc + "c.service": wanted("Before=b.service\n", "Type=oneshot\nExecStart=/bin/sh -c 'echo c >>$$ROOT/log'\n"),
		})
		told := boot(root)
		Eventually(told.list).Should(Equal([]string{"c.service active", "b.service active", "a.service active"}))
		Expect(os.ReadFile(filepath.Join(root, "log"))).To(BeEquivalentTo("c\nb\na\n"))
	})

	It("restarts a failing service according to Restart=, up to its start limit", func() {
		told := boot(rootWith(map[string]string{
			enableAll: "enable *\n",
			etc + "a.service": wanted("StartLimitBurst=3\n",
				"Type=oneshot\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=10ms\n"),
		}))
		Eventually(told.list).Should(HaveExactElements(
			HavePrefix("a.service restarting"), HavePrefix("a.service restarting"), HavePrefix("a.service restarting"),
			ContainSubstring("started 3 times within 10s")))
	})

	It("does not start units that require a failed unit, but units that are only ordered after it", func() {
		told := boot(rootWith(map[string]string{
			enableAll:         "enable *\n",
			etc + "a.service": wanted("", "Type=oneshot\nExecStart=/bin/false\n"),
			etc + "b.service": wanted("After=a.service\nRequires=a.service\n", "ExecStart=/bin/sleep 60\n"),
			etc + "c.service": wanted("After=a.service\n", "ExecStart=/bin/sleep 60\n"),
		}))
		Eventually(told.list).Should(ConsistOf(HavePrefix("a.service failed"),
			ContainSubstring("required unit a.service failed"), Equal("c.service active")))
	})

	It("starts early units before all others, and makes unit properties available to systemctl", func() {
		root := rootWith(map[string]string{
			enableAll:         "enable *\n",
			etc + "b.service": wanted("", "Type=oneshot\nEnvironmentFile=-/e\nExecStart=/bin/sh -c 'echo $$A b >>$$ROOT/log'\n"),
			etc + "a.service": "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n[Service]\nType=oneshot\n" +
				"ExecStart=/bin/sh -c 'sleep 0.2; echo a >>$$ROOT/log'\n[Install]\nWantedBy=sysinit.target\n",
		})
		Eventually(boot(root).list).Should(Equal([]string{"a.service active", "b.service active"}))
		Expect(os.ReadFile(filepath.Join(root, showDir, "b.service"))).To(BeEquivalentTo("Id=b.service\nFragmentPath=/etc/systemd/system/b.service\n" +
			"ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c echo $$A b >>$$ROOT/log ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n" +
			"EnvironmentFiles=/e (ignore_errors=yes)\n"))
	})

	It("does not start a unit by its path unit if it requires a failed unit", func() {
		told := boot(rootWith(map[string]string{
			enableAll:         "enable *.path\ndisable *\n",
			etc + "a.path":    "[Path]\nPathExists=/ready\n[Install]\nWantedBy=paths.target\n",
			etc + "a.service": "[Unit]\nRequires=b.service\nAfter=b.service\n[Service]\nExecStart=/bin/sleep 60\n",
			etc + "b.service": "[Service]\nType=oneshot\nExecStart=/bin/false\n",
			etc + "multi-user.target.wants/b.service": "",
			"ready": "",
		}))
		Eventually(told.list).Should(ConsistOf(Equal("a.path active"), HavePrefix("b.service failed"), ContainSubstring("required unit b.service failed")))
	})

	It("starts a path unit's service when the path appears, with ExecStartPre= and ExecStartPost=", func() {
		root := rootWith(map[string]string{
			enableAll:         "enable *.path\ndisable *\n",
			etc + "a.path":    "[Path]\nPathExists=/ready\n[Install]\nWantedBy=paths.target\n",
			etc + "a.service": "[Service]\nExecStartPre=-/bin/false\nExecStart=/bin/sleep 60\nExecStartPost=/bin/sh -c 'echo post >$$ROOT/log'\n",
		})
		told := boot(root)
		Eventually(told.list).Should(Equal([]string{"a.path active"}))
		Consistently(told.list).WithTimeout(300 * time.Millisecond).Should(HaveLen(1))
		Expect(os.WriteFile(filepath.Join(root, "ready"), nil, 0o644)).To(Succeed())
		Eventually(told.list).Should(Equal([]string{"a.path active", "a.service active"}))
		Expect(filepath.Join(root, "log")).To(BeAnExistingFile())
	})

	It("fails a path unit whose service exits immediately while the path exists, as systemd does", func() {
		told := boot(rootWith(map[string]string{
			enableAll:         "enable *.path\ndisable *\n",
			etc + "a.path":    "[Path]\nPathExists=/ready\n[Install]\nWantedBy=paths.target\n",
			etc + "a.service": "[Service]\nType=oneshot\nExecStart=/bin/true\n",
			"ready":           "",
		}))
		Eventually(told.list).Should(ContainElement(ContainSubstring("started 5 times within 10s")))
	})

	It("fails a start that takes too long", func() {
		told := boot(rootWith(map[string]string{
			enableAll: "enable *\n",
			etc + "a.service": wanted("",
				"ExecStart=/bin/sleep 60\nExecStartPost=/bin/sleep 60\nTimeoutStartSec=200ms\n"),
			etc + "b.service": wanted("", "Type=notify\nExecStart=/bin/sleep 60\nTimeoutStartSec=200ms\n"),
		}))
		Eventually(told.list).Should(ConsistOf(ContainSubstring("a.service failed unit a.service: not started within 200ms"),
			ContainSubstring("b.service failed unit b.service: not started within 200ms")))
	})

	It("skips masked units and units with false conditions, and ignores units that the image lacks", func() {
		root := rootWith(map[string]string{
			enableAll: "enable *\n",
			etc + "a.service": wanted("ConditionPathExists=/missing\nWants=of-another-image.service\nAfter=network-online.target\n",
				"ExecStart=/bin/sleep 60\n"),
		})
		Expect(os.Symlink("/dev/null", filepath.Join(root, etc, "b.service"))).To(Succeed())
		Eventually(boot(root).list).Should(Equal([]string{"a.service skipped"}))
	})

	It("refuses to boot with unsupported units, and names all of them", func() {
		manager := &Manager{Root: rootWith(map[string]string{
			enableAll:         "enable *\n",
			etc + "a.service": wanted("", "ExecStart=/bin/true\nType=dbus\n"),
			etc + "b.timer":   "[Install]\nWantedBy=timers.target\n",
		})}
		err := manager.Boot(context.Background())
		Expect(err).To(MatchError(And(ContainSubstring("a.service"), ContainSubstring("b.timer"))))
		Expect(strings.Count(err.Error(), "\n")).To(Equal(1))
	})
})
