package networkdata

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

type kind int

const (
	ethernet kind = iota
	bond
	vlan
)

// link is an interface.
type link struct {
	id, path string
	kind     kind

	// name is the name of the interface. An Ethernet interface has one only if it has no MAC address here: it is found
	// by the one that it has, and keeps its name.
	name string

	mac string
	mtu int

	// options are those of a bond, by their names in the kernel.
	options []option
	members []*link

	// bond is the bond of a member.
	bond *link

	// parent is the interface of a VLAN.
	parent *link
	vlanID int
	vlans  []*link

	v4, v6 family
	dns    []netip.Addr
}

type option struct {
	bondOption
	value string
}

func (l *link) families() [2]*family { return [2]*family{&l.v4, &l.v6} }

// hasNetwork reports whether the interface has addresses.
func (l *link) hasNetwork() bool { return l.v4.isUsed() || l.v6.isUsed() }

// ethernetTypes are OpenStack's types of links that are no bonds and VLANs: what the hypervisor connects them to.
var ethernetTypes = []string{"phy", "ethernet", "bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif", "bgpovs", "cascading"}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`)
	namePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,14}$`)
	reserved    = []string{"all", "default", "lo"}
)

func isInterfaceName(name string) bool {
	return namePattern.MatchString(name) && !slices.Contains(reserved, name)
}

// interfaceName returns the name of a bond or a VLAN: its id, if an interface can have that name.
func interfaceName(id string) string {
	if isInterfaceName(id) {
		return id
	}
	return fmt.Sprintf("net-%.5x", sha256.Sum256([]byte(id)))
}

// links reads the links, and connects them.
func (p *parser) links(entries []entry) {
	members, parents := map[*link][]string{}, map[*link]string{}
	names, macs := map[string]*link{}, map[string]*link{}
	for _, e := range entries {
		l := &link{path: e.path, id: e.text("id"), name: e.text("name"), mtu: e.number("mtu", 0, 65535)}
		kind := e.text("type")
		switch {
		case kind == "bond":
			l.kind, l.mac = bond, e.mac("ethernet_mac_address")
			members[l] = e.members()
			l.options = e.bondOptions()
		case kind == "vlan":
			l.kind, l.mac, l.vlanID = vlan, e.mac("vlan_mac_address"), e.number("vlan_id", 1, 4094)
			parents[l] = e.text("vlan_link")
			e.take("ethernet_mac_address") // as OpenStack writes it: that of the parent
			if l.vlanID == 0 {
				e.failf(e.at("vlan_id"), "is empty")
			}
		case slices.Contains(ethernetTypes, kind):
			l.mac = e.mac("ethernet_mac_address")
		default:
			e.failf(e.at("type"), "%.40q is not a type of link: use phy, bond or vlan", kind)
		}
		e.end("vif_id", "network_id")
		switch {
		case !idPattern.MatchString(l.id):
			e.failf(e.at("id"), "%.70q is not an id: use 1 to 64 letters, digits and the characters . _ : -", l.id)
		case p.byID[l.id] != nil:
			e.failf(e.at("id"), "%q is the id of %s too", l.id, p.byID[l.id].path)
		}
		if l.name != "" && !isInterfaceName(l.name) {
			e.failf(e.at("name"), "%.40q is not the name of an interface: use at most 15 letters, digits and the characters . _ -, and begin with a letter", l.name)
		}
		if l.kind == ethernet && l.mac != "" {
			if other := macs[l.mac]; other != nil {
				e.failf(e.at("ethernet_mac_address"), "%s is the MAC address of %s too", l.mac, other.path)
			}
			macs[l.mac], l.name = l, ""
		} else if l.kind == ethernet && l.name == "" {
			e.failf(e.at("ethernet_mac_address"), "is empty: set it, or name")
		}
		if l.kind != ethernet && l.name == "" {
			l.name = interfaceName(l.id)
		}
		if other := names[l.name]; l.name != "" && other != nil {
			e.failf(e.at("name"), "%q is the name of %s too", l.name, other.path)
		}
		names[l.name], p.byID[l.id] = l, l
		p.all = append(p.all, l)
	}
	for _, l := range p.all {
		p.connectMembers(l, members[l])
	}
	tags := map[string]*link{}
	for _, l := range p.all {
		if l.kind == vlan {
			p.connectVLAN(l, parents[l], tags)
		}
	}
}

// connectMembers connects a bond with its members.
func (p *parser) connectMembers(l *link, ids []string) {
	path := l.path + ".bond_links"
	if l.kind == bond && len(ids) == 0 {
		p.failf(path, "is empty: name the ids of its links")
	}
	for _, id := range ids {
		member := p.byID[id]
		switch {
		case member == nil:
			p.failf(path, "no link has the id %.70q", id)
			return
		case member.kind != ethernet:
			p.failf(path, "link %q is a bond or a VLAN: only physical interfaces can be in a bond", id)
			return
		case member.bond != nil:
			p.failf(path, "link %q is named twice, also in %s", id, member.bond.path)
			return
		}
		member.bond = l
		l.members = append(l.members, member)
	}
	if l.kind == bond && l.mac == "" && len(l.members) > 0 {
		l.mac = l.members[0].mac // as the kernel does. systemd-networkd would generate one.
	}
}

// connectVLAN connects a VLAN with its interface.
func (p *parser) connectVLAN(l *link, id string, tags map[string]*link) {
	path := l.path + ".vlan_link"
	parent := p.byID[id]
	switch {
	case parent == nil:
		p.failf(path, "no link has the id %.70q", id)
	case parent.kind == vlan:
		p.failf(path, "link %q is a VLAN: name a physical interface or a bond", id)
	case parent.bond != nil:
		p.failf(path, "link %q is in the bond %q: name the bond", id, parent.bond.id)
	default:
		tag := fmt.Sprintf("%s %d", id, l.vlanID)
		if other := tags[tag]; other != nil {
			p.failf(l.path+".vlan_id", "%d is the VLAN of %s on link %q too", l.vlanID, other.path, id)
		}
		tags[tag], l.parent = l, parent
		parent.vlans = append(parent.vlans, l)
	}
}

// members returns the ids in bond_links.
func (e entry) members() []string {
	values, _ := e.take("bond_links").([]any)
	var ids []string
	for _, value := range values {
		id, ok := value.(string)
		if !ok {
			e.failf(e.at("bond_links"), "must be a list of ids")
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

// bondOption is an option of bonds.
type bondOption struct {
	// name is the kernel's name, which the field has after bond_.
	name, networkd string
	// values are the possible ones. Without them, it is a number up to max.
	values []string
	max    int
	// unit is systemd-networkd's unit of the number.
	unit string
}

var bondOptions = []bondOption{
	{name: "mode", networkd: "Mode", values: []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"}},
	{name: "miimon", networkd: "MIIMonitorSec", max: 60000, unit: "ms"},
	{name: "updelay", networkd: "UpDelaySec", max: 600000, unit: "ms"},
	{name: "downdelay", networkd: "DownDelaySec", max: 600000, unit: "ms"},
	{name: "xmit_hash_policy", networkd: "TransmitHashPolicy", values: []string{"layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4"}},
	{name: "lacp_rate", networkd: "LACPTransmitRate", values: []string{"slow", "fast"}},
	{name: "ad_select", networkd: "AdSelect", values: []string{"stable", "bandwidth", "count"}},
	{name: "min_links", networkd: "MinLinks", max: maxLinks},
	{name: "fail_over_mac", networkd: "FailOverMACPolicy", values: []string{"none", "active", "follow"}},
	{name: "primary_reselect", networkd: "PrimaryReselectPolicy", values: []string{"always", "better", "failure"}},
}

// bondOptions returns the options of a bond.
func (e entry) bondOptions() []option {
	var options []option
	mode := ""
	for _, o := range bondOptions {
		field := "bond_" + o.name
		value := ""
		if o.values == nil {
			if n := e.number(field, 0, o.max); n > 0 {
				value = fmt.Sprint(n)
			}
		} else if value = e.text(field); value != "" && !slices.Contains(o.values, value) {
			e.failf(e.at(field), "%.40q is none of %s", value, strings.Join(o.values, ", "))
		}
		switch {
		case o.name == "mode":
			if mode = value; mode == "" {
				e.failf(e.at(field), "is empty")
			}
		case o.name == "miimon" && value == "":
			value = "100" // without it, a bond does not notice that a link is down
		case o.name == "lacp_rate" && value != "" && mode != "802.3ad":
			e.failf(e.at(field), "needs the mode 802.3ad")
		}
		if value != "" {
			options = append(options, option{bondOption: o, value: value})
		}
	}
	return options
}
