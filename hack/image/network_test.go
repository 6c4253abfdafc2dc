package image

import (
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
			if got := i.read("calls"); got != "systemctl start systemd-networkd.service\nwait-online --any --timeout=0\nsystemctl start --no-block systemd-timesyncd.service\n" {
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
