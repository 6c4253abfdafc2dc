package main

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = DescribeTable("Invalid flags are refused with the remedy", func(change func(*options), remedy string) {
	o := newOptions()
	o.overlayNamespace, o.externalURL = "poolboot-system", "https://boot.example:8443/prefix"
	Expect(o.validate()).To(Succeed())
	change(o)
	Expect(o.validate()).To(MatchError(ContainSubstring(remedy)))
},
	Entry("no namespace", func(o *options) { o.overlayNamespace = "" }, "POD_NAMESPACE"),
	Entry("a watch filter that is not a label value", func(o *options) { o.watchFilter = "a b" }, "--watch-filter"),
	Entry("no URL", func(o *options) { o.externalURL = "" }, "https://host"),
	Entry("a URL without TLS", func(o *options) { o.externalURL = "http://boot.example" }, "https://host"),
	Entry("a URL without a host", func(o *options) { o.externalURL = "https:///config" }, "https://host"),
	Entry("a URL with a query", func(o *options) { o.externalURL = "https://boot.example/?a=b" }, "https://host"),
	Entry("profiles on all addresses", func(o *options) { o.profilerAddress = ":6060" }, "localhost"),
	Entry("profiles on an address that is not local", func(o *options) { o.profilerAddress = "192.0.2.1:6060" }, "localhost"),
	Entry("an invalid URL", func(o *options) { o.externalURL = "https://boot.example:port" }, "--external-url"),
)
