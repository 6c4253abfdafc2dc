package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// newRangesPatch returns a patch of an Enrollment's addressRanges.
func newRangesPatch(of ...string) string {
	return fmt.Sprintf("spec: {addressRanges: [%s]}", `"`+strings.Join(of, `", "`)+`"`)
}

var _ = Describe("An Enrollment", func() {
	DescribeTable("is accepted with", expectAccepted("Enrollment"),
		Entry("the required fields only", `{}`),
		Entry("the maximum number of uses", `spec: {maxUses: 1000}`),
		Entry("a Cluster whose name has dots, as Cluster API accepts it", `spec: {clusterName: site.north}`),
		Entry("a pattern with character classes", `spec: {namePattern: "edge-[0-9][^a-f]?.*"}`),
		Entry("address ranges of both families", newRangesPatch("192.0.2.0/24", "198.51.100.7/32", "2001:db8::/64")),
	)
	DescribeTable("is refused with", expectRefused("Enrollment"),
		Entry("no spec", `spec: null`, "spec", "Required"),
		Entry("no Cluster", `spec: {clusterName: null}`, "spec.clusterName", "Required"),
		Entry("an invalid Cluster name", `spec: {clusterName: a..b.-c}`, "spec.clusterName", "lowercase RFC 1123 subdomain"),
		Entry("no role", `spec: {poolRole: null}`, "spec.poolRole", "Required"),
		Entry("a role with spaces", `spec: {poolRole: "NOT A ROLE!"}`, "spec.poolRole", "should match"),
		Entry("the role of the control plane", `spec: {poolRole: control-plane}`, "spec.poolRole", "hosts of the control plane boot by the control plane provider"),
		Entry("no pattern", `spec: {namePattern: null}`, "spec.namePattern", "Required"),
		Entry("a malformed pattern", `spec: {namePattern: "edge-[0-9"}`, "spec.namePattern", "should match"),
		Entry("an empty pattern", `spec: {namePattern: ""}`, "spec.namePattern", "at least 1"),
		Entry("a pattern with an empty set", `spec: {namePattern: "edge-[]"}`, "spec.namePattern", "should match"),
		Entry("a pattern with an unterminated set", `spec: {namePattern: "edge-["}`, "spec.namePattern", "should match"),
		Entry("a pattern with characters that names can't have", `spec: {namePattern: "Edge_*"}`, "spec.namePattern", "should match"),
		Entry("a pattern with an escape", `spec: {namePattern: 'edge-\*'}`, "spec.namePattern", "should match"),
		Entry("a pattern with capitals", `spec: {namePattern: "Edge-*"}`, "spec.namePattern", "should match"),
		Entry("no number of uses", `spec: {maxUses: null}`, "spec.maxUses", "Required"),
		Entry("no uses", `spec: {maxUses: 0}`, "spec.maxUses", "greater than or equal to 1"),
		Entry("a negative number of uses", `spec: {maxUses: -5}`, "spec.maxUses", "greater than or equal to 1"),
		Entry("more uses than the maximum", `spec: {maxUses: 1001}`, "spec.maxUses", "less than or equal to 1000"),
		Entry("no expiration time", `spec: {expirationTime: null}`, "spec.expirationTime", "Required"),
		Entry("an expiration time that is not a time", `spec: {expirationTime: tomorrow}`, "spec.expirationTime", "date-time"),
		Entry("no Secret", `spec: {tokenSecretRef: null}`, "spec.tokenSecretRef", "Required"),
		Entry("a Secret reference without a name", `spec: {tokenSecretRef: {name: null}}`, "spec.tokenSecretRef.name", "Required"),
		Entry("a Secret name with a path", `spec: {tokenSecretRef: {name: "../edge"}}`, "spec.tokenSecretRef.name", "should match"),
		Entry("an empty Secret name", `spec: {tokenSecretRef: {name: ""}}`, "spec.tokenSecretRef.name", "at least 1"),
		Entry("an invalid Secret name", `spec: {tokenSecretRef: {name: a..b.-c}}`, "spec.tokenSecretRef.name", "should match"),
		Entry("an empty list of address ranges", `spec: {addressRanges: []}`, "spec.addressRanges", "at least 1"),
		Entry("an address range that is an address", newRangesPatch("192.0.2.7"), "spec.addressRanges", "CIDR without host bits"),
		Entry("an address range with host bits", newRangesPatch("192.0.2.7/24"), "spec.addressRanges", "CIDR without host bits"),
		Entry("an address range of IPv6 with host bits", newRangesPatch("2001:db8::1/64"), "spec.addressRanges", "CIDR without host bits"),
		Entry("an address range that is not an address range", newRangesPatch("everywhere"), "spec.addressRanges", "CIDR without host bits"),
		Entry("all IPv6 addresses", newRangesPatch("::/0"), "spec.addressRanges", "must not contain all addresses"),
		Entry("all IPv4 addresses", newRangesPatch("0.0.0.0/0"), "spec.addressRanges", "must not contain all addresses"),
		Entry("a duplicate address range", newRangesPatch("192.0.2.0/24", "192.0.2.0/24"), "spec.addressRanges[1]", "Duplicate"),
	)
	DescribeTable("can't be changed", expectImmutable("Enrollment"),
		Entry("in its Cluster", `spec: {clusterName: infra-2}`, "spec.clusterName", "it is immutable: create another Enrollment"),
		Entry("in its role", `spec: {poolRole: infra}`, "spec.poolRole", "it is immutable: create another Enrollment"),
	)
	DescribeTable("is refused a status with", func(ctx SpecContext, status, field string, words ...string) {
		Expect(patchStatus(ctx, "Enrollment", "status: "+status)).To(matchRefusal(field, words...))
	},
		Entry("a hash that is not a hash", `{tokenSHA256: `+strings.Repeat("z", 64)+`}`, "status.tokenSHA256", "should match"),
		Entry("a hash that is too short", `{tokenSHA256: abc}`, "status.tokenSHA256", "at least 64"),
		Entry("a negative number of uses", `{usedCount: -1}`, "status.usedCount", "greater than or equal to 0"),
		Entry("two requests for one name", `{requests: [{name: a, requestedTime: "2026-01-01T00:00:00.000000Z"}, {name: a, requestedTime: "2026-01-01T00:00:00.000000Z"}]}`,
			"status.requests[1]", "Duplicate"),
		Entry("a request from an invalid address", `{requests: [{name: a, requestedTime: "2026-01-01T00:00:00.000000Z", address: 192.0.2.256}]}`,
			"status.requests[0].address", "IP address"),
		Entry("a request with a zero time", `{requests: [{name: a, requestedTime: "0001-01-01T00:00:00.000000Z", address: 192.0.2.7}]}`, "status.requests[0].requestedTime", "later than"),
		Entry("a request without a name", `{requests: [{requestedTime: "2026-01-01T00:00:00.000000Z"}]}`, "status.requests[0].name", "Required"),
	)
})
