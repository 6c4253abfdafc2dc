package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// from is an entry of status.boot.addresses.
func from(address string) string {
	return fmt.Sprintf(`{address: %q, firstUsedTime: "2026-01-01T00:00:00.000000Z", token: 0123456789abcdef}`, address)
}

// addresses are as many entries.
func addresses(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = from(fmt.Sprintf("192.0.2.%d", i))
	}
	return strings.Join(entries, ", ")
}

var _ = Describe("The addresses that a token came from", func() {
	noted := func(ctx SpecContext, entries string) error {
		return report(ctx, "PoolbootConfig", "status: {boot: {addresses: ["+entries+"]}}")
	}
	DescribeTable("are taken", func(ctx SpecContext, entries string) { Expect(noted(ctx, entries)).To(Succeed()) },
		Entry("of IPv4 and IPv6", from("192.0.2.7")+", "+from("2001:db8::7")),
		Entry("as many as there may be", addresses(16)),
	)
	DescribeTable("are refused", func(ctx SpecContext, entries, field string, words ...string) {
		Expect(noted(ctx, entries)).To(refuse("status.boot.addresses"+field, words...))
	},
		Entry("as a name", from("rack1-u12"), "[0].address", "must be an IP address"),
		Entry("with a zone", from("fe80::1%eth0"), "[0].address", "must be an IP address"),
		Entry("with a port", from("192.0.2.7:80"), "[0].address", "must be an IP address"),
		Entry("without an address", "{firstUsedTime: \"2026-01-01T00:00:00.000000Z\", token: 0123456789abcdef}", "[0].address", "Required"),
		Entry("first used at no time, which Go leaves out when it writes", `{address: 192.0.2.7, firstUsedTime: "0001-01-01T00:00:00.000000Z", token: 0123456789abcdef}`,
			"[0].firstUsedTime", "later than"),
		Entry("twice", from("192.0.2.7")+", "+from("192.0.2.7"), "[1]", "Duplicate value"),
		Entry("beyond the limit", addresses(17), "", "at most 16 items"),
	)
})
