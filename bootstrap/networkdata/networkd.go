package networkdata

import (
	"fmt"
	"strings"
)

// NetworkdDirectory is where systemd-networkd reads the files of the host.
const NetworkdDirectory = "/etc/systemd/network"

// Networkd returns the files of systemd-networkd in NetworkdDirectory.
func (d *Data) Networkd() []File {
	var files []File
	for _, l := range d.links {
		name := NetworkdDirectory + "/" + filePrefix + l.id
		if l.kind != ethernet {
			files = append(files, File{Path: name + ".netdev", Mode: 0o644, Contents: l.netdev()})
		}
		files = append(files, File{Path: name + ".network", Mode: 0o644, Contents: l.network()})
	}
	return files
}

// settings writes settings in sections. A section without settings is not written.
type settings struct {
	strings.Builder
	header string
}

func (s *settings) section(name string) {
	s.header = "[" + name + "]\n"
	if s.Len() > 0 {
		s.header = "\n" + s.header
	}
}

// set writes a setting that has a value.
func (s *settings) set(key string, value any) {
	if value != "" && value != 0 {
		fmt.Fprintf(s, "%s%s=%v\n", s.header, key, value)
		s.header = ""
	}
}

// netdev returns the file that creates a bond or a VLAN.
func (l *link) netdev() []byte {
	s := &settings{}
	s.section("NetDev")
	s.set("Name", l.name)
	if l.kind == bond {
		s.set("Kind", "bond")
		s.set("MACAddress", l.mac)
		s.section("Bond")
		for _, o := range l.options {
			s.set(o.networkd, o.value+o.unit)
		}
		return []byte(s.String())
	}
	s.set("Kind", "vlan")
	s.set("MACAddress", l.mac)
	s.section("VLAN")
	s.set("Id", l.vlanID)
	return []byte(s.String())
}

// network returns the file that configures an interface.
func (l *link) network() []byte {
	s := &settings{}
	s.section("Match")
	if l.name != "" {
		s.set("Name", l.name)
	} else {
		// VLANs and bonds have the MAC address of an interface too, and a bond changes those of its members.
		s.set("PermanentMACAddress", l.mac)
	}
	s.section("Link")
	if l.bond == nil { // a bond sets that of its members
		s.set("MTUBytes", l.mtu)
	}
	if !l.hasNetwork() {
		s.set("RequiredForOnline", "no")
	}
	s.section("Network")
	if l.bond != nil {
		s.set("Bond", l.bond.name)
	}
	for _, v := range l.vlans {
		s.set("VLAN", v.name)
	}
	if !l.hasNetwork() {
		s.set("LinkLocalAddressing", "no")
	}
	s.set("DHCP", map[[2]bool]string{{false, false}: "no", {true, false}: "ipv4", {false, true}: "ipv6", {true, true}: "yes"}[[2]bool{l.v4.dhcp, l.v6.dhcp}])
	s.set("IPv6AcceptRA", map[bool]string{true: "yes", false: "no"}[l.v6.dhcp || l.v6.slaac])
	for _, server := range l.dns {
		s.set("DNS", server)
	}
	for _, f := range l.families() {
		for _, address := range f.addresses {
			s.set("Address", address)
		}
	}
	if l.v6.slaac && !l.v6.dhcp {
		s.section("IPv6AcceptRA")
		s.set("DHCPv6Client", "no")
	}
	for _, f := range l.families() {
		for _, r := range f.routes {
			s.section("Route")
			s.set("Destination", r.destination)
			s.set("Gateway", r.gateway)
			if f.isOnLink(r) {
				s.set("GatewayOnLink", "yes")
			}
		}
	}
	return []byte(s.String())
}
