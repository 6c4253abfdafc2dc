package networkdata_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/golden"
)

// text returns files as one text.
func text(files []networkdata.File) []byte {
	all := &strings.Builder{}
	for _, f := range files {
		fmt.Fprintf(all, "# %s %#o\n%s\n", f.Path, f.Mode, f.Contents)
	}
	return []byte(all.String())
}

func parse(document string) *networkdata.Data {
	GinkgoHelper()
	data, err := networkdata.Parse([]byte(document))
	Expect(err).NotTo(HaveOccurred())
	return data
}

// document returns network data with an interface nic1, and what the arguments add.
func document(links, networks string) string {
	return "links: [{id: nic1, type: phy, ethernet_mac_address: '02:00:00:00:00:01'}" + links + "]\nnetworks: [" + networks + "]"
}

var _ = Describe("network data", func() {
	It("becomes files of systemd-networkd and NetworkManager that equal the golden files", func() {
		raw, err := os.ReadFile(filepath.Join("testdata", "everything.yaml"))
		Expect(err).NotTo(HaveOccurred())
		data := parse(string(raw))
		golden.Expect("networkd.txt", text(data.Networkd()))
		golden.Expect("networkmanager.txt", text(data.NetworkManager()))
		Expect(data.Addresses()).To(HaveExactElements(netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10"), netip.MustParseAddr("203.0.113.5")))
	})

	It("is the same as YAML and as the JSON of the config drive", func() {
		yaml := parse(document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1/24}"))
		json := parse(`{"links":[{"id":"nic1","type":"ethernet","ethernet_mac_address":"02:00:00:00:00:01","mtu":null,"vif_id":""}],
			"networks":[{"id":"a","network_id":"b","type":"ipv4","link":"nic1","ip_address":"192.0.2.1","netmask":"24","routes":[]}],"services":[]}`)
		Expect(json.Networkd()).To(Equal(yaml.Networkd()))
	})

	It("configures an address without a gateway, and no default route", func() {
		files := parse(document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1/24}")).Networkd()
		Expect(files).To(HaveLen(1))
		Expect(string(files[0].Contents)).To(And(ContainSubstring("Address=192.0.2.1/24\n"), Not(ContainSubstring("Gateway"))))
	})

	It("configures nothing without links", func() {
		Expect(parse("").Networkd()).To(BeEmpty())
		Expect(parse("{links: [], networks: [], services: []}").NetworkManager()).To(BeEmpty())
	})

	It("reads 200 interfaces with VLANs in a moment", func() {
		links, networks := &strings.Builder{}, &strings.Builder{}
		for i := range 200 {
			fmt.Fprintf(links, ", {id: v%d, type: vlan, vlan_id: %d, vlan_link: nic1}", i, i+1)
			fmt.Fprintf(networks, "{type: ipv4, link: v%d, ip_address: 192.0.2.%d/24},", i, i+1)
		}
		start := time.Now()
		Expect(parse(document(links.String(), networks.String())).Networkd()).To(HaveLen(401))
		Expect(time.Since(start)).To(BeNumerically("<", time.Second))
	})

	It("must be about interfaces that the host has", func() {
		data := parse(document(", {id: nic2, type: phy, name: eno2}", ""))
		Expect(data.CheckInterfaces([]string{"02:00:00:00:00:02", "02-00-00-00-00-01"})).To(Succeed())
		Expect(data.CheckInterfaces([]string{"02:00:00:00:00:02"})).To(MatchError("links[0].ethernet_mac_address: the host has no interface with the MAC address " +
			"02:00:00:00:00:01: correct it, or inspect the host again"))
	})

	DescribeTable("is refused, and the error names entry and field, for", func(document, message string) {
		_, err := networkdata.Parse([]byte(document))
		Expect(err).To(MatchError(message))
	},
		Entry("a bond of interfaces that no link describes", document(", {id: b, type: bond, bond_mode: 802.3ad, bond_links: [nic1, nic2]}", ""),
			`links[1].bond_links: no link has the id "nic2"`),
		Entry("a bond of nothing", document(", {id: b, type: bond, bond_mode: 802.3ad}", ""), "links[1].bond_links: is empty: name the ids of its links"),
		Entry("a bond without a mode", document(", {id: b, type: bond, bond_links: [nic1]}", ""), "links[1].bond_mode: is empty"),
		Entry("an interface in two bonds", document(", {id: a, type: bond, bond_mode: 802.3ad, bond_links: [nic1]}, {id: b, type: bond, bond_mode: 802.3ad, bond_links: [nic1]}", ""),
			`links[2].bond_links: link "nic1" is named twice, also in links[1]`),
		Entry("a bond in a bond", document(", {id: a, type: bond, bond_mode: 802.3ad, bond_links: [nic1]}, {id: b, type: bond, bond_mode: 802.3ad, bond_links: [a]}", ""),
			`links[2].bond_links: link "a" is a bond or a VLAN: only physical interfaces can be in a bond`),
		Entry("an option of bonds that is not known", document(", {id: b, type: bond, bond_mode: 802.3ad, bond_links: [nic1], bond_arp_interval: 5}", ""),
			`links[1]: unknown field "bond_arp_interval"`),
		Entry("an option for another mode", document(", {id: b, type: bond, bond_mode: balance-rr, bond_links: [nic1], bond_lacp_rate: fast}", ""),
			"links[1].bond_lacp_rate: needs the mode 802.3ad"),
		Entry("two interfaces with one MAC address", document(", {id: nic2, type: phy, ethernet_mac_address: 02-00-00-00-00-01}", ""),
			"links[1].ethernet_mac_address: 02:00:00:00:00:01 is the MAC address of links[0] too"),
		Entry("an interface without a MAC address and a name", document(", {id: nic2, type: phy}", ""), "links[1].ethernet_mac_address: is empty: set it, or name"),
		Entry("two links with one id", document(", {id: nic1, type: phy, name: eno2}", ""), `links[1].id: "nic1" is the id of links[0] too`),
		Entry("two interfaces with one name", document(", {id: a, type: phy, name: eno2}, {id: b, type: phy, name: eno2}", ""), `links[2].name: "eno2" is the name of links[1] too`),
		Entry("an unknown type of link", document(", {id: w, type: wifi}", ""), `links[1].type: "wifi" is not a type of link: use phy, bond or vlan`),
		Entry("a bridge", document(", {id: br, type: bridge, name: br0, bridge_links: [nic1]}", ""), `links[1]: unknown field "bridge_links"`),
		Entry("a VLAN on nothing", document(", {id: v, type: vlan, vlan_id: 10}", ""), `links[1].vlan_link: no link has the id ""`),
		Entry("a VLAN on a VLAN", document(", {id: v, type: vlan, vlan_id: 10, vlan_link: nic1}, {id: w, type: vlan, vlan_id: 10, vlan_link: v}", ""),
			`links[2].vlan_link: link "v" is a VLAN: name a physical interface or a bond`),
		Entry("a VLAN that is there twice", document(", {id: v, type: vlan, vlan_id: 10, vlan_link: nic1}, {id: w, type: vlan, vlan_id: 10, vlan_link: nic1}", ""),
			`links[2].vlan_id: 10 is the VLAN of links[1] on link "nic1" too`),
		Entry("a VLAN with a number that is none", document(", {id: v, type: vlan, vlan_id: 4095, vlan_link: nic1}", ""), `links[1].vlan_id: "4095" is not a number from 1 to 4094`),
		Entry("a route without a gateway, as of an IPPool that has none", document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1/24, routes: [{network: 0.0.0.0/0, gateway: ''}]}"),
			"networks[0].routes[0].gateway: is empty: set it, or gateway in the IPPool, or remove the route"),
		Entry("an address without a netmask, as of an IPPool that has no prefix", document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1, netmask: ''}"),
			"networks[0].netmask: is empty: set it, or prefix in the IPPool"),
		Entry("a netmask with a hole", document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1, netmask: 255.0.255.0}"),
			`networks[0].netmask: "255.0.255.0" is not the netmask of an IPv4 network`),
		Entry("an address of the other family", document("", "{type: ipv6, link: nic1, ip_address: 192.0.2.1/24}"), `networks[0].ip_address: "192.0.2.1" is not an IPv6 address`),
		Entry("an address that is there twice", document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1/24}, {type: ipv4, link: nic1, ip_address: 192.0.2.1/24}"),
			"networks[1].ip_address: 192.0.2.1 is the address of networks[0] too"),
		Entry("an unknown type of network", document("", "{type: ipv5, link: nic1}"), `networks[0].type: "ipv5" is not a type of network: use ipv4, ipv6, ipv4_dhcp, ipv6_dhcp or ipv6_slaac`),
		Entry("a network of no link", document("", "{type: ipv4_dhcp, link: eth0}"), `networks[0].link: no link has the id "eth0"`),
		Entry("a network of an interface in a bond", document(", {id: b, type: bond, bond_mode: 802.3ad, bond_links: [nic1]}", "{type: ipv4_dhcp, link: nic1}"),
			`networks[0].link: link "nic1" is in the bond "b": name the bond`),
		Entry("a field that is not known", document("", "{type: ipv4, link: nic1, ip_address: 192.0.2.1/24, gateway: 192.0.2.2}"), `networks[0]: unknown field "gateway"`),
		Entry("another service", document("", "")+"\nservices: [{type: ntp, address: 192.0.2.1}]", `services[0].type: "ntp" is not a type of service: use dns`),
		Entry("a list that is none", "links: {}", "links: must be a list of objects"),
		Entry("an id that leaves the directory", document(`, {id: "../../cron.d/a", type: phy, name: eno2}`, ""),
			`links[1].id: "../../cron.d/a" is not an id: use 1 to 64 letters, digits and the characters . _ : -`),
		Entry("an id with a line of its own", document(`, {id: "a\n[Match]", type: phy, name: eno2}`, ""),
			`links[1].id: "a\n[Match]" is not an id: use 1 to 64 letters, digits and the characters . _ : -`),
		Entry("a name that matches other interfaces", document(`, {id: a, type: phy, name: "e*"}`, ""),
			`links[1].name: "e*" is not the name of an interface: use at most 15 letters, digits and the characters . _ -, and begin with a letter`),
		Entry("an address with a line of its own", document("", `{type: ipv4, link: nic1, ip_address: "192.0.2.1\nDHCP=yes", netmask: "24"}`),
			`networks[0].ip_address: "192.0.2.1\nDHCP=yes" is not an IPv4 address`),
		Entry("more than 256 links", document(strings.Repeat(", {}", 256), ""), "links: has 257 entries: the maximum is 256"),
		Entry("a huge document", strings.Repeat(" ", 256<<10+1), "the network data has 262145 bytes: the maximum is 262144"),
		// A user who names the Secret in a BareMetalHost must not learn what is in it.
		Entry("a Secret with a text", "hunter2", "the network data is not an object with the fields links, networks and services"),
		Entry("a Secret with a kubeconfig", "users: []\ntoken: hunter2", "the network data has a field other than links, networks and services: remove it"),
		Entry("a Secret with two equal keys", "hunter2: a\nhunter2: b", "the network data is not valid YAML, or has a key twice: see line 2"),
		Entry("an alias, many of which would take all memory", "links: [&a "+strings.Repeat("x", 128<<10)+strings.Repeat(", *a", 30<<10)+"]",
			"the network data has the character &: write what a YAML anchor stands for"),
		Entry("a Secret with an alias", "a: 1\nb: *hunter2", "the network data is not valid YAML, or has a key twice"),
		Entry("no YAML", "a: 1\n\t: hunter2", "the network data is not valid YAML, or has a key twice: see line 2"),
	)
})
