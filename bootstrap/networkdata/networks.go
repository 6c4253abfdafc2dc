package networkdata

import (
	"net/netip"
	"slices"
)

// family is what an interface has of IPv4 or IPv6.
type family struct {
	addresses []netip.Prefix
	// dhcp and slaac are independent of addresses. Only IPv6 has slaac, without dhcp.
	dhcp, slaac bool
	routes      []route
}

func (f *family) isUsed() bool { return len(f.addresses) > 0 || f.dhcp || f.slaac }

type route struct {
	destination netip.Prefix
	gateway     netip.Addr
}

// isOnLink reports whether the gateway is outside the networks of a static interface, where systemd-networkd and
// NetworkManager would refuse the route.
func (f *family) isOnLink(r route) bool {
	return !f.dhcp && !f.slaac && !r.gateway.IsLinkLocalUnicast() &&
		!slices.ContainsFunc(f.addresses, func(p netip.Prefix) bool { return p.Contains(r.gateway) })
}

func (p *parser) networks(entries []entry) {
	owners := map[netip.Addr]string{}
	for _, e := range entries {
		kind, id := e.text("type"), e.text("link")
		l := p.byID[id]
		switch {
		case l == nil:
			e.failf(e.at("link"), "no link has the id %.70q", id)
			continue
		case l.bond != nil:
			e.failf(e.at("link"), "link %q is in the bond %q: name the bond", id, l.bond.id)
		}
		number, f := 6, &l.v6
		switch kind {
		case "ipv4", "ipv4_dhcp":
			number, f = 4, &l.v4
		}
		switch kind {
		case "ipv4", "ipv6":
			prefix := e.prefix("ip_address", number)
			address := prefix.Addr()
			if !address.IsValid() {
				continue
			}
			if address.IsUnspecified() || address.IsMulticast() || address.IsLoopback() {
				e.failf(e.at("ip_address"), "%s is not the address of a host", address)
			}
			if other := owners[address]; other != "" {
				e.failf(e.at("ip_address"), "%s is the address of %s too", address, other)
			}
			owners[address] = e.path
			f.addresses = append(f.addresses, prefix)
		case "ipv4_dhcp", "ipv6_dhcp", "ipv6_dhcpv6-stateful", "ipv6_dhcpv6-stateless":
			f.dhcp = true
			e.take("netmask") // null in OpenStack's
		case "ipv6_slaac":
			f.slaac = true
		default:
			e.failf(e.at("type"), "%.40q is not a type of network: use ipv4, ipv6, ipv4_dhcp, ipv6_dhcp or ipv6_slaac", kind)
		}
		for _, r := range e.objects("routes", maxNetworks) {
			f.routes = append(f.routes, p.route(r, number, l))
		}
		l.dns = append(l.dns, p.services(e.objects("services", maxServices))...)
		e.end("id", "network_id")
	}
}

// route reads a route of a network.
func (p *parser) route(e entry, number int, l *link) route {
	if p.routes++; p.routes > maxNetworks {
		e.failf(e.path, "there are more than %d routes", maxNetworks)
	}
	r := route{destination: e.prefix("network", number).Masked(), gateway: e.address("gateway", number)}
	if !r.gateway.IsValid() {
		e.failf(e.at("gateway"), "is empty: set it, or gateway in the IPPool, or remove the route")
	} else if r.gateway.IsUnspecified() || r.gateway.IsMulticast() {
		e.failf(e.at("gateway"), "%s is not the address of a router", r.gateway)
	}
	l.dns = append(l.dns, p.services(e.objects("services", maxServices))...)
	e.end()
	return r
}

// services reads DNS servers.
func (p *parser) services(entries []entry) []netip.Addr {
	var servers []netip.Addr
	for _, e := range entries {
		if kind := e.text("type"); kind != "dns" {
			e.failf(e.at("type"), "%.40q is not a type of service: use dns", kind)
		}
		server := e.address("address", 0)
		if !server.IsValid() || server.IsUnspecified() || server.IsMulticast() {
			e.failf(e.at("address"), "is not the address of a DNS server")
		}
		e.end()
		servers = append(servers, server)
	}
	return servers
}

// assignServers gives each interface the global DNS servers too, and removes those that it can't reach, because it has
// no address of their family.
func (p *parser) assignServers(global []netip.Addr) {
	for _, l := range p.all {
		seen := map[netip.Addr]bool{}
		var servers []netip.Addr
		for _, server := range slices.Concat(l.dns, global) {
			f := &l.v6
			if server.Is4() {
				f = &l.v4
			}
			if f.isUsed() && !seen[server] {
				seen[server] = true
				servers = append(servers, server)
			}
		}
		l.dns = servers
	}
}
