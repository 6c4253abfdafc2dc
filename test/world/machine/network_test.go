package machine

import (
	"net"
	"slices"
	"testing"
)

func TestFramesForTheMetadataServiceAreCounted(t *testing.T) {
	ethernet := make([]byte, ethernetAddresses)
	v4 := func(destination string) []byte {
		return slices.Concat(ethernet, []byte{0x08, 0x00}, make([]byte, 16), net.ParseIP(destination).To4(), make([]byte, 20))
	}
	v6 := func(destination, neighbor string) []byte {
		return slices.Concat(ethernet, []byte{0x86, 0xdd}, make([]byte, 24), net.ParseIP(destination), make([]byte, 8), net.ParseIP(neighbor))
	}
	for name, c := range map[string]struct {
		frame    []byte
		expected bool
	}{
		"IPv4":                       {v4("169.254.169.254"), true},
		"IPv4 to another":            {v4("198.19.255.1"), false},
		"IPv6":                       {v6("fe80::a9fe:a9fe", "::"), true},
		"IPv6, neighbor discovery":   {v6("ff02::1:fffe:a9fe", "fe80::a9fe:a9fe"), true},
		"IPv6 to another":            {v6("fe80::1", "::"), false},
		"ARP, with the address":      {slices.Concat(ethernet, []byte{0x08, 0x06}, make([]byte, 16), []byte{169, 254, 169, 254}), false},
		"IPv4 that is cut off early": {v4("169.254.169.254")[:33], false},
	} {
		if got := isForMetadata(c.frame); got != c.expected {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
