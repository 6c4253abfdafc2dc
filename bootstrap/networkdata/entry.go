package networkdata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// entry is an object of the document. Reading a field takes it out.
type entry struct {
	*parser
	path   string
	fields map[string]any
}

// list returns the objects of a list.
func (p *parser) list(path string, raw json.RawMessage, limit int) []entry {
	if len(raw) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var objects []map[string]any
	if decoder.Decode(&objects) != nil {
		p.failf(path, "must be a list of objects")
		return nil
	}
	return p.entries(path, objects, limit)
}

func (p *parser) entries(path string, objects []map[string]any, limit int) []entry {
	if len(objects) > limit {
		p.failf(path, "has %d entries: the maximum is %d", len(objects), limit)
		return nil
	}
	result := make([]entry, len(objects))
	for i, fields := range objects {
		result[i] = entry{parser: p, path: fmt.Sprintf("%s[%d]", path, i), fields: fields}
	}
	return result
}

func (e entry) at(field string) string { return e.path + "." + field }

func (e entry) take(field string) any {
	value := e.fields[field]
	delete(e.fields, field)
	return value
}

// text returns a text or a number. It is empty if the field is.
func (e entry) text(field string) string {
	switch value := e.take(field).(type) {
	case nil:
	case string:
		return value
	case json.Number:
		return value.String()
	default:
		e.failf(e.at(field), "must be a text")
	}
	return ""
}

// number returns a number within limits. It is 0 if the field is empty.
func (e entry) number(field string, low, high int) int {
	text := e.text(field)
	if text == "" {
		return 0
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < low || value > high {
		e.failf(e.at(field), "%.40q is not a number from %d to %d", text, low, high)
		return 0
	}
	return value
}

// objects returns the objects of a list in the entry.
func (e entry) objects(field string, limit int) []entry {
	value := e.take(field)
	values, ok := value.([]any)
	if value != nil && !ok {
		e.failf(e.at(field), "must be a list of objects")
	}
	var objects []map[string]any
	for _, value := range values {
		object, ok := value.(map[string]any)
		if !ok {
			e.failf(e.at(field), "must be a list of objects")
			return nil
		}
		objects = append(objects, object)
	}
	return e.entries(e.at(field), objects, limit)
}

// mac returns a MAC address in lower case with colons. It is empty if the field is.
func (e entry) mac(field string) string {
	text := e.text(field)
	if text == "" {
		return ""
	}
	mac, err := parseMAC(text)
	if err != nil {
		e.failf(e.at(field), "%.40q is not the MAC address of an interface", text)
	}
	return mac
}

func parseMAC(text string) (string, error) {
	mac, err := net.ParseMAC(text)
	if err != nil {
		return "", err
	}
	if len(mac) != 6 || mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) {
		return "", errors.New("not an Ethernet address")
	}
	return mac.String(), nil
}

// address returns an IP address of a family, 4 or 6. It is invalid after an error and if the field is empty.
func (e entry) address(field string, family int) netip.Addr {
	text := e.text(field)
	if text == "" {
		return netip.Addr{}
	}
	return e.parseAddress(field, text, family)
}

func (e entry) parseAddress(field, text string, family int) netip.Addr {
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || address.Is4In6() || family != 0 && address.Is4() != (family == 4) {
		what := "IP"
		if family != 0 {
			what = fmt.Sprintf("IPv%d", family)
		}
		e.failf(e.at(field), "%.60q is not an %s address", text, what)
		return netip.Addr{}
	}
	return address
}

// prefix returns an address with the length of its network, which is in the same field after a slash, or in netmask.
func (e entry) prefix(field string, family int) netip.Prefix {
	text, length, _ := strings.Cut(e.text(field), "/")
	if mask := e.text("netmask"); mask != "" {
		if length != "" && length != mask {
			e.failf(e.at(field), "has a length of the network, and netmask too: remove one")
		}
		length = mask
	}
	if text == "" {
		e.failf(e.at(field), "is empty")
		return netip.Prefix{}
	}
	if length == "" {
		e.failf(e.at("netmask"), "is empty: set it, or prefix in the IPPool")
		return netip.Prefix{}
	}
	address := e.parseAddress(field, text, family)
	bits, ok := maskBits(length, family)
	if !address.IsValid() || !ok {
		e.failf(e.at("netmask"), "%.60q is not the netmask of an IPv%d network", length, family)
		return netip.Prefix{}
	}
	return netip.PrefixFrom(address, bits)
}

// maskBits returns the length of a network from a number or a mask.
func maskBits(text string, family int) (int, bool) {
	length := map[int]int{4: 32, 6: 128}[family]
	if bits, err := strconv.Atoi(text); err == nil {
		return bits, bits >= 0 && bits <= length
	}
	address, err := netip.ParseAddr(text)
	if err != nil || address.BitLen() != length || address.Zone() != "" {
		return 0, false
	}
	ones, bits := net.IPMask(address.AsSlice()).Size()
	return ones, bits == length
}

// end fails if a field was not read. Null and empty fields are like absent ones.
func (e entry) end(ignored ...string) {
	for _, field := range slices.Sorted(maps.Keys(e.fields)) {
		if value := e.fields[field]; value != nil && value != "" && !slices.Contains(ignored, field) {
			e.failf(e.path, "unknown field %.40q", field)
		}
	}
}
