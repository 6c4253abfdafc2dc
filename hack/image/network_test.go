package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestNetworkHasTheNameServersOfDHCP(t *testing.T) {
	for name, c := range map[string]struct{ state, expected string }{
		"two servers and a domain": {"OPER_STATE=routable\nDNS=192.0.2.53 2001:db8::53\nDOMAINS=a.example.com b.example.com\n",
			"nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch a.example.com b.example.com\n"},
		"none": {"OPER_STATE=routable\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := newInitramfs(t)
			i.write("state", c.state)
			i.program("systemctl", `echo "systemctl $*" >>"$CALLS"`)
			i.program("wait-online", `echo "wait-online $*" >>"$CALLS"`)
			i.environment = append(i.environment, "NETIF_STATE="+i.path("state"), "RESOLV_CONF="+i.path("resolv.conf"), "WAIT_ONLINE="+i.path("bin/wait-online"))
			if output, err := i.run("31poolboot-network/start-network.sh", "0"); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			if got := i.read("resolv.conf"); got != c.expected {
				t.Errorf("got %q, want %q", got, c.expected)
			}
			if got := i.read("calls"); got != "systemctl start systemd-networkd.service\nwait-online --any --operational-state=routable --timeout=0\nsystemctl start --no-block systemd-timesyncd.service\n" {
				t.Errorf("calls: %s", got)
			}
		})
	}
}

func TestNetworkWithoutTimesyncd(t *testing.T) {
	i := newInitramfs(t)
	i.write("state", "OPER_STATE=routable\n")
	i.program("systemctl", `[[ "$*" != *timesyncd* ]]`)
	i.program("wait-online", "")
	i.environment = append(i.environment, "NETIF_STATE="+i.path("state"), "RESOLV_CONF="+i.path("resolv.conf"), "WAIT_ONLINE="+i.path("bin/wait-online"))
	if output, err := i.run("31poolboot-network/start-network.sh", "0"); err != nil || !strings.Contains(output, "The clock is not set") {
		t.Errorf("%v: %s", err, output)
	}
}

// It runs the script with the kernel's own routing, in a network namespace.
func TestNoUserDataFromTheNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace")
	}
	script, err := filepath.Abs("dracut/31poolboot-network/block-metadata.sh")
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("unshare", "--net", "bash", "-euc", `
ip link add net0 type veth peer name net1
ip link set net0 up
ip link set net1 up
ip address add 192.0.2.1/24 dev net0
ip route add default via 192.0.2.2
reachable() {
	ip route get 169.254.169.254 >/dev/null 2>&1 && echo "$1: IPv4 metadata service"
	[ ! -e /proc/net/if_inet6 ] || ! ip -6 route get fe80::a9fe:a9fe oif net0 >/dev/null 2>&1 || echo "$1: IPv6 metadata service"
	ip route get 198.51.100.1 >/dev/null && echo "$1: config server"
}
reachable before
sh "$0" add
reachable during
# systemd-networkd removes all other rules.
{ ip -details rule; ip -6 -details rule 2>/dev/null; } | grep prohibit | grep -v "proto kernel" || true
sh "$0" del
reachable after`, script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got, want := string(output), expectReachable("before", true)+expectReachable("during", false)+expectReachable("after", true); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// expectReachable returns what the host reaches, with or without metadata services.
func expectReachable(when string, metadata bool) (expected string) {
	if metadata {
		expected = when + ": IPv4 metadata service\n"
		if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
			expected += when + ": IPv6 metadata service\n"
		}
	}
	return expected + when + ": config server\n"
}

// systemd-network-generator writes the files of ip=, vlan= and bond=, with names that start with 90. For each
// interface, systemd-networkd applies the first file that matches.
func TestKernelArgumentsOfTheNetworkApply(t *testing.T) {
	for _, pattern := range []string{"dracut/31poolboot-network/*.network", "files/usr/lib/systemd/network/*.network"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if filepath.Base(file) < "90-zzz" {
				t.Errorf("%s overrides what the kernel arguments configure", file)
			}
		}
	}
}
