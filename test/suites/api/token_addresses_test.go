package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// newAddress returns an entry of status.requests.addresses.
func newAddress(address string) string {
	return fmt.Sprintf(`{address: %q, firstUsedTime: "2026-01-01T00:00:00.000000Z", token: 0123456789abcdef}`, address)
}

// newAddresses returns n entries.
func newAddresses(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = newAddress(fmt.Sprintf("192.0.2.%d", i))
	}
	return strings.Join(entries, ", ")
}

var _ = Describe("The addresses from which a token was used", func() {
	patchAddresses := func(ctx SpecContext, entries string) error {
		return patchStatus(ctx, "PoolbootConfig", "status: {requests: {addresses: ["+entries+"]}}")
	}
	DescribeTable("are accepted", func(ctx SpecContext, entries string) { Expect(patchAddresses(ctx, entries)).To(Succeed()) },
		Entry("of IPv4 and IPv6", newAddress("192.0.2.7")+", "+newAddress("2001:db8::7")),
		Entry("up to the limit", newAddresses(16)),
	)
	DescribeTable("are refused", func(ctx SpecContext, entries, field string, words ...string) {
		Expect(patchAddresses(ctx, entries)).To(matchRefusal("status.requests.addresses"+field, words...))
	},
		Entry("as a name", newAddress("rack1-u12"), "[0].address", "must be an IP address"),
		Entry("with a zone", newAddress("fe80::1%eth0"), "[0].address", "must be an IP address"),
		Entry("with a port", newAddress("192.0.2.7:80"), "[0].address", "must be an IP address"),
		Entry("without an address", "{firstUsedTime: \"2026-01-01T00:00:00.000000Z\", token: 0123456789abcdef}", "[0].address", "Required"),
		Entry("with a zero time, which Go omits when it encodes", `{address: 192.0.2.7, firstUsedTime: "0001-01-01T00:00:00.000000Z", token: 0123456789abcdef}`,
			"[0].firstUsedTime", "later than"),
		Entry("twice", newAddress("192.0.2.7")+", "+newAddress("192.0.2.7"), "[1]", "Duplicate value"),
		Entry("beyond the limit", newAddresses(17), "", "at most 16 items"),
	)
})
