package hosts_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// The host of these specs boots once, with what the pool infra renders from its MachineConfig and that of the pool
// worker.
var _ = Describe("What a pool configures takes effect on its hosts:", Ordered, ContinueOnFailure, func() {
	var (
		h                             *baremetal.Host
		workerKey, infraKey, otherKey ssh.Signer
	)

	BeforeAll(func(ctx SpecContext) {
		workerKey, infraKey, otherKey = newKey(), newKey(), newKey()
		h = newHostWithUserData(newRack(ctx), "host-0", baremetal.KubeletImage, servedTo("infra",
			machineConfig("00-worker", "worker", workerConfig(workerKey)), machineConfig("51-infra", "infra", infraConfig(infraKey))))
		Expect(h.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		waitForBoot(ctx, h)
	}, NodeTimeout(3*time.Minute))

	It("users with the keys, passwords and groups of the pool worker and of the pool", func(ctx SpecContext) {
		Expect(h.Run(ctx, "cat", "/home/core/.ssh/authorized_keys.d/ignition")).To(And(
			ContainSubstring(authorized(workerKey)), ContainSubstring(authorized(infraKey))))
		Expect(h.Run(ctx, "getent", "shadow", "core", "ops")).To(And(ContainSubstring("core:$6$of$infra:"), ContainSubstring("ops:*:")))
		Expect(h.Run(ctx, "id", "ops")).To(ContainSubstring("uid=2000(ops)"))
		Expect(h.Run(ctx, "getent", "group", "operators")).To(Equal("operators:x:3000:core,ops\n"))
	})

	It("SSH keys, with which users log in to the real sshd, and with no other key", func(ctx SpecContext) {
		for _, key := range []ssh.Signer{workerKey, infraKey} {
			Expect(runOverSSH(ctx, h, "core", key, "id -un; id -Gn")).To(Equal("core\ncore operators\n"))
		}
		_, err := runOverSSH(ctx, h, "core", otherKey, "true")
		Expect(err).To(MatchError(ContainSubstring("unable to authenticate, attempted methods [none publickey]")))
		_, err = runOverSSH(ctx, h, "ops", infraKey, "true")
		Expect(err).To(MatchError(ContainSubstring("unable to authenticate")), "each user has keys of its own")
	})

	It("presets and masks of units, and drop-ins for units of the image", func(ctx SpecContext) {
		state := func(unit string) string {
			output, _ := h.Run(ctx, "systemctl", "is-enabled", unit) // it fails for all that are not enabled
			active, _ := h.Run(ctx, "systemctl", "is-active", unit)
			return strings.TrimSpace(output) + " " + strings.TrimSpace(active)
		}
		Expect(state("ssh.service")).To(Equal("enabled active"), "the image disables it by default")
		Expect(state("kept.service")).To(Equal("enabled active"))
		Expect(state("dropped.service")).To(Equal("disabled inactive"), "the pool infra disables what the pool worker enables")
		Expect(state("dev-mqueue.mount")).To(Equal("masked inactive"), "a unit of the image that sysinit.target wants")
		Expect(h.Run(ctx, "systemctl", "show", "--property=DropInPaths", "--value", "ssh.service")).To(Equal("/etc/systemd/system/ssh.service.d/10-host-keys.conf\n"))
		Expect(h.Run(ctx, "sh", "-c", "ls /etc/ssh/ssh_host_*_key")).NotTo(BeEmpty(), "the drop-in creates keys of the host")
	})

	It("sysctl.d, where a file of the pool that is read later wins", func(ctx SpecContext) {
		Expect(h.Run(ctx, "sysctl", "--values", "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_keepalive_intvl")).To(Equal("120\n30\n"))
	})

	It("tmpfiles.d, with users of the pool as owners", func(ctx SpecContext) {
		Expect(h.Run(ctx, "stat", "--format=%F %a %U %G", "/var/lib/infra")).To(Equal("directory 750 ops operators\n"))
	})

	It("systemd-networkd files: a network device and its address", func(ctx SpecContext) {
		Expect(h.Run(ctx, "ip", "-brief", "-4", "address", "show", "dev", "storage0")).To(ContainSubstring(" 192.0.2.7/24"))
		Expect(h.Run(ctx, "ip", "-brief", "link", "show", "dev", "storage0")).To(ContainSubstring(" 02:00:00:00:00:07 "))
	})

	// The kernel belongs to the machine that runs the tests. So modprobe.d has a command in place of a module.
	It("modules-load.d: the real loader reads it, and reports a module that does not exist in the journal only", func(ctx SpecContext) {
		Expect(h.Run(ctx, "cat", "/run/module-loaded")).To(Equal("infra_module\n"))
		// Not by unit: the loader has exited when the journal looks up its unit.
		Expect(h.Journal(ctx, "--identifier=systemd-modules-load")).To(ContainSubstring("Failed to find module 'missing_module'"))
		Expect(h.Run(ctx, "systemctl", "list-units", "--failed", "--plain", "--no-legend")).To(BeEmpty())
	})
})

// workerConfig returns the Ignition of the pool worker. Its sshd has the settings of the image that hack/image builds.
func workerConfig(key ssh.Signer) map[string]any {
	const hostKeys, keyFiles = "etc/systemd/system/ssh.service.d/10-host-keys.conf", "etc/ssh/sshd_config.d/10-ignition.conf"
	return map[string]any{
		"passwd": map[string]any{"users": []any{
			map[string]any{"name": "core", "passwordHash": "$6$of$worker", "sshAuthorizedKeys": []any{authorized(key)}}}},
		"storage": files(
			file("/"+keyFiles, 0o644, imageFile(keyFiles)),
			file("/etc/sysctl.d/90-worker.conf", 0o644, "net.ipv4.tcp_keepalive_time = 300\nnet.ipv4.tcp_keepalive_intvl = 30\n")),
		"systemd": units(
			map[string]any{"name": "ssh.service", "enabled": true, "dropins": []any{
				map[string]any{"name": "10-host-keys.conf", "contents": imageFile(hostKeys)}}},
			unit("kept.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/bin/true", "[Install]", "WantedBy=multi-user.target"),
			unit("dropped.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=/bin/true", "[Install]", "WantedBy=multi-user.target")),
	}
}

// infraConfig returns the Ignition of the pool infra.
func infraConfig(key ssh.Signer) map[string]any {
	return map[string]any{
		"passwd": map[string]any{
			"groups": []any{map[string]any{"name": "operators", "gid": 3000}},
			"users": []any{
				map[string]any{"name": "core", "passwordHash": "$6$of$infra", "groups": []any{"operators"}, "sshAuthorizedKeys": []any{authorized(key)}},
				map[string]any{"name": "ops", "uid": 2000, "noCreateHome": true, "groups": []any{"operators"}},
			}},
		"storage": files(
			file("/etc/sysctl.d/95-infra.conf", 0o644, "net.ipv4.tcp_keepalive_time = 120\n"),
			file("/etc/tmpfiles.d/infra.conf", 0o644, "d /var/lib/infra 0750 ops operators -\n"),
			file("/etc/systemd/network/50-storage.netdev", 0o644, "[NetDev]\nName=storage0\nKind=bridge\nMACAddress=02:00:00:00:00:07\n"),
			file("/etc/systemd/network/50-storage.network", 0o644,
				"[Match]\nName=storage0\n[Link]\nRequiredForOnline=no\n[Network]\nAddress=192.0.2.7/24\nConfigureWithoutCarrier=yes\n"),
			file("/etc/modules-load.d/infra.conf", 0o644, "infra_module\nmissing_module\n"),
			file("/etc/modprobe.d/infra.conf", 0o644, "install infra_module echo infra_module >>/run/module-loaded\n")),
		"systemd": units(
			map[string]any{"name": "dropped.service", "enabled": false},
			map[string]any{"name": "dev-mqueue.mount", "mask": true},
			// This host has no right to load modules.
			map[string]any{"name": "systemd-modules-load.service", "dropins": []any{
				map[string]any{"name": "10-unconditional.conf", "contents": "[Unit]\nConditionCapability=\n"}}}),
	}
}

// machineConfig returns a MachineConfig of a role.
func machineConfig(name, role string, config map[string]any) poolv1.MachineConfig {
	return poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": role}},
		Spec:       poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: document(config)}},
	}
}

func poolOf(role string) poolv1.MachineConfigPool {
	return poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}, Spec: poolv1.MachineConfigPoolSpec{
		PoolRole: role, MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}}
}

// servedTo returns the configuration that the config server hands out to the hosts of a custom pool.
func servedTo(role string, configs ...poolv1.MachineConfig) []byte {
	GinkgoHelper()
	rendered, err := pool.Render(role, []poolv1.MachineConfigPool{poolOf("worker"), poolOf(role)}, configs)
	Expect(err).NotTo(HaveOccurred())
	served, err := pool.Served(rendered.Name, rendered.Spec)
	Expect(err).NotTo(HaveOccurred())
	return served
}

// imageFile returns a file of the image that hack/image builds.
func imageFile(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(sourcetree.Path("hack", "image", "files", path))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func newKey() ssh.Signer {
	GinkgoHelper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	signer, err := ssh.NewSignerFromKey(private)
	Expect(err).NotTo(HaveOccurred())
	return signer
}

// authorized returns the line of an authorized_keys file.
func authorized(key ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}

// runOverSSH logs in to a host from this machine, and returns the output of a command.
func runOverSSH(ctx context.Context, h *baremetal.Host, user string, key ssh.Signer, command string) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(h.Address(), "22"))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	over, channels, requests, err := ssh.NewClientConn(connection, h.Address(), &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		return "", err
	}
	client := ssh.NewClient(over, channels, requests)
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer session.Close()
	output, err := session.Output(command)
	return string(output), err
}
