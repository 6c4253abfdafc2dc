package main

import (
	"os"
	"path/filepath"

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
	Entry("a URL with only a port", func(o *options) { o.externalURL = "https://:9444" }, "https://host"),
	Entry("a URL with a query", func(o *options) { o.externalURL = "https://boot.example/?a=b" }, "https://host"),
	Entry("profiles on all addresses", func(o *options) { o.profilerAddress = ":6060" }, "localhost"),
	Entry("profiles on an address that is not local", func(o *options) { o.profilerAddress = "192.0.2.1:6060" }, "localhost"),
	Entry("an invalid URL", func(o *options) { o.externalURL = "https://boot.example:port" }, "--external-url"),
)

var _ = DescribeTable("A directory of agents is refused", func(files map[string]int64, why string) {
	directory := GinkgoT().TempDir()
	for name, size := range files {
		Expect(os.WriteFile(filepath.Join(directory, name), nil, 0o600)).To(Succeed())
		Expect(os.Truncate(filepath.Join(directory, name), size)).To(Succeed())
	}
	_, err := readPrograms(directory)
	Expect(err).To(MatchError(ContainSubstring(why)))
},
	Entry("without an agent", map[string]int64{"README.md": 7}, "must have 1 to 8"),
	Entry("with an empty agent", map[string]int64{"poolboot-agent-amd64": 0}, "poolboot-agent-amd64 is empty"),
	Entry("with an agent that is too large", map[string]int64{"poolboot-agent-amd64": maxProgramSize + 1}, "more than 67108864 bytes"),
	Entry("with too many agents", map[string]int64{"poolboot-agent-1": 7, "poolboot-agent-2": 7, "poolboot-agent-3": 7, "poolboot-agent-4": 7,
		"poolboot-agent-5": 7, "poolboot-agent-6": 7, "poolboot-agent-7": 7, "poolboot-agent-8": 7, "poolboot-agent-9": 7}, "has 9 files"),
)
