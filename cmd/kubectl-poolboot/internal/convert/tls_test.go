package convert

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert, of TLS profiles and swap in KubeletConfigs", func() {
	converting := func(spec string) clitest.Result {
		worker := addLabel(clitest.OpenShiftWorker, "role: worker")
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, newKubeletConfig("a", "role: worker", spec)), "--cluster", "infra-1", "-n", "edge")
	}
	const (
		tls13        = "TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256"
		intermediate = tls13 + " TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 " +
			"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 " +
			"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
		old = intermediate + " TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256 TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA " +
			"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA " +
			"TLS_RSA_WITH_AES_128_GCM_SHA256 TLS_RSA_WITH_AES_256_GCM_SHA384 TLS_RSA_WITH_AES_128_CBC_SHA256 TLS_RSA_WITH_AES_128_CBC_SHA " +
			"TLS_RSA_WITH_AES_256_CBC_SHA TLS_RSA_WITH_3DES_EDE_CBC_SHA"
	)

	DescribeTable("sets the minimum version and the cipher suites of a profile",
		func(spec, version, suites, remark string) {
			r := converting(spec)
			Expect(r.Code).To(BeZero(), r.ErrOut)
			Expect(r.ErrOut).To(HavePrefix(remark))
			Expect(strings.Count(r.ErrOut, "\n")).To(Equal(strings.Count(remark+" ", "warning")))
			list := "      tlsCipherSuites:\n      - " + strings.ReplaceAll(suites, " ", "\n      - ") + "\n"
			Expect(r.Out).To(ContainSubstring(list + "      tlsMinVersion: " + version + "\n"))
		},
		Entry("Old", "tlsSecurityProfile: {type: Old, old: {}}", "VersionTLS10", old, ""),
		Entry("Intermediate", "tlsSecurityProfile: {type: Intermediate}", "VersionTLS12", intermediate, ""),
		Entry("the default", "tlsSecurityProfile: {}", "VersionTLS12", intermediate, ""),
		Entry("the default, with an empty type", `tlsSecurityProfile: {type: ""}`, "VersionTLS12", intermediate, ""),
		Entry("Modern", "tlsSecurityProfile: {type: Modern}", "VersionTLS13", tls13, ""),
		Entry("Custom", "tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS11, ciphers: [ECDHE-RSA-AES128-GCM-SHA256, DHE-RSA-AES256-SHA256]}}",
			"VersionTLS11", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
			`warning: KubeletConfig "a": spec.tlsSecurityProfile.custom.ciphers[1] is left out: kubelets do not have "DHE-RSA-AES256-SHA256"`),
		Entry("with a field that the KubeletConfig sets", "tlsSecurityProfile: {type: Modern}, kubeletConfig: {tlsMinVersion: VersionTLS12}", "VersionTLS12", tls13, ""),
	)

	DescribeTable("refuses a profile that OpenShift would refuse",
		func(profile, why string) {
			clitest.ExpectError(converting("tlsSecurityProfile: "+profile), 1, `KubeletConfig "a": spec.tlsSecurityProfile.`+why)
		},
		Entry("whose type is no text", "{type: 5}", "type: must be a string, not 5: quote it"),
		Entry("without its settings", "{type: Custom}", "custom: is missing: the type is Custom: set custom.minTLSVersion and custom.ciphers"),
		Entry("with settings that are no object", "{type: Custom, custom: null}", "custom: is missing: the type is Custom"),
		Entry("with a version that is a number", "{type: Custom, custom: {minTLSVersion: 1.2}}", `custom.minTLSVersion: Unsupported value: 1.2: supported values: "VersionTLS10", "VersionTLS11"`),
		Entry("with a version that does not exist", "{type: Custom, custom: {minTLSVersion: TLS12}}", `custom.minTLSVersion: Unsupported value: "TLS12": supported values: "VersionTLS10"`),
		Entry("with cipher suites that are one text", "{type: Custom, custom: {ciphers: ECDHE-RSA-AES128-GCM-SHA256}}", `custom.ciphers: must be a list, not the string "ECDHE-RSA-AES128-GCM-SHA256"`),
		Entry("with a cipher suite that is no text", "{type: Custom, custom: {ciphers: [5]}}", "custom.ciphers[0]: must be a string, not 5: quote it"),
		Entry("with a key in the wrong case", "{type: Custom, custom: {minTlsVersion: VersionTLS13}}", "custom.minTlsVersion: OpenShift has no such field: correct its name to minTLSVersion, or remove it: custom has minTLSVersion and ciphers"),
		Entry("with a key that does not exist", "{type: Custom, custom: {a: b}}", "custom.a: OpenShift has no such field: remove it: custom has minTLSVersion and ciphers"),
		Entry("with settings and without a type", "{custom: {minTLSVersion: VersionTLS13}}", "type: is missing: the profile has custom: set the type Custom, or remove custom"),
	)

	It("refuses a log level that no kubelet has", func() {
		clitest.ExpectError(converting("logLevel: -1"), 1, `KubeletConfig "a": spec.logLevel: Invalid value: -1: must be 0 or more`)
	})

	DescribeTable("names what it leaves out of a predefined profile",
		func(profile, remark string) {
			r := converting("tlsSecurityProfile: " + profile)
			Expect(r.Code).To(BeZero(), r.ErrOut)
			Expect(r.ErrOut).To(Equal(`warning: KubeletConfig "a": spec.tlsSecurityProfile.` + remark + "\n"))
		},
		Entry("settings", "{type: Old, custom: {minTLSVersion: VersionTLS13}}", "custom is left out: the type is Old: set the type Custom, or remove custom"),
		Entry("a key that OpenShift does not have", "{type: Old, foo: {a: 1}}", "foo is left out: OpenShift has no such field: remove it"),
		Entry("a key in the wrong place", "{type: Old, old: {minTLSVersion: VersionTLS13}}", "old.minTLSVersion is left out: OpenShift has no such field: remove it"),
	)

	It("names an unknown profile", func() {
		r := converting("tlsSecurityProfile: {type: Future}")
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(HavePrefix(`warning: KubeletConfig "a": spec.tlsSecurityProfile is left out: the profile "Future" is unknown: set tlsMinVersion`))
	})

	It("keeps the settings for swap", func() {
		out := clitest.ExpectSuccess(converting("kubeletConfig: {failSwapOn: false, memorySwap: {swapBehavior: LimitedSwap}}"))
		Expect(out).To(And(ContainSubstring("      failSwapOn: false\n"), ContainSubstring("      memorySwap:\n        swapBehavior: LimitedSwap\n")))
	})
})
