package networkdata

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
)

// NetworkManagerDirectory is where NetworkManager reads the files of the host.
const NetworkManagerDirectory = "/etc/NetworkManager/system-connections"

// NetworkManager returns the files of NetworkManager in NetworkManagerDirectory, which it ignores if others can read
// them.
func (d *Data) NetworkManager() []File {
	files := make([]File, len(d.links))
	for i, l := range d.links {
		files[i] = File{Path: NetworkManagerDirectory + "/" + filePrefix + l.id + ".nmconnection", Mode: 0o600, Contents: l.connection()}
	}
	return files
}

// uuid returns the UUID of a connection, which is always the same.
func (l *link) uuid() string {
	sum := sha256.Sum256([]byte("network data " + l.id))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8: own rules
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// connection returns the file of an interface.
func (l *link) connection() []byte {
	s := &settings{}
	s.section("connection")
	s.set("id", l.id)
	s.set("uuid", l.uuid())
	s.set("type", map[kind]string{ethernet: "ethernet", bond: "bond", vlan: "vlan"}[l.kind])
	s.set("interface-name", l.name)
	s.set("autoconnect-priority", 1) // those of the image have 0 or less
	if l.bond != nil {
		s.set("master", l.bond.uuid())
		s.set("slave-type", "bond")
	}
	s.section("ethernet")
	if l.kind == ethernet {
		s.set("mac-address", l.mac)
	} else {
		s.set("cloned-mac-address", l.mac)
	}
	if l.bond != nil { // a bond sets the MTU of its members, and has the addresses
		return []byte(s.String())
	}
	s.set("mtu", l.mtu)
	if l.kind == bond {
		s.section("bond")
		for _, o := range l.options {
			s.set(o.name, o.value)
		}
	}
	if l.kind == vlan {
		s.section("vlan")
		s.set("id", l.vlanID)
		s.set("parent", l.parent.uuid())
	}
	s.section("ipv4")
	s.set("method", method(l.v4, "disabled"))
	l.addresses(s, l.v4, netip.Addr.Is4)
	s.section("ipv6")
	unused := "disabled"
	if l.hasNetwork() {
		unused = "link-local"
	}
	s.set("method", method(l.v6, unused))
	l.addresses(s, l.v6, netip.Addr.Is6)
	return []byte(s.String())
}

// method returns how an interface gets its addresses. With IPv6, auto follows what routers advertise: SLAAC, DHCP or
// both.
func method(f family, unused string) string {
	switch {
	case f.dhcp || f.slaac:
		return "auto"
	case len(f.addresses) > 0:
		return "manual"
	}
	return unused
}

// addresses writes addresses, routes and DNS servers of a family.
func (l *link) addresses(s *settings, f family, isOf func(netip.Addr) bool) {
	for i, address := range f.addresses {
		s.set(fmt.Sprintf("address%d", i+1), address)
	}
	for i, r := range f.routes {
		key := fmt.Sprintf("route%d", i+1)
		s.set(key, r.destination.String()+","+r.gateway.String())
		if f.isOnLink(r) {
			s.set(key+"_options", "onlink=true")
		}
	}
	servers := ""
	for _, server := range l.dns {
		if isOf(server) {
			servers += server.String() + ";"
		}
	}
	s.set("dns", servers)
}
