package ignition_test

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("The search for --cloud-provider=external", func() {
	file := func(path, text string) ignition.Config {
		config := ignition.New()
		config.Storage.Files = []types.File{{Node: types.Node{Path: path},
			FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: ptr.To(dataurl.EncodeBytes([]byte(text)))}}}}
		return config
	}
	find := func(text string) string {
		return ignition.FindExternalCloudProvider(file("/etc/default/kubelet", text))
	}

	DescribeTable("finds the flag",
		func(text string) { Expect(find(text)).To(Equal("file /etc/default/kubelet")) },
		Entry(nil, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
		Entry(nil, "KUBELET_EXTRA_ARGS=--v=2 --cloud-provider external"),
		Entry(nil, "KUBELET_EXTRA_ARGS=--cloud_provider=external --v=2"),
		Entry(nil, `KUBELET_EXTRA_ARGS="--cloud-provider=external"`),
		Entry(nil, `KUBELET_EXTRA_ARGS='--cloud-provider'='external'`),
		Entry(nil, "exec kubelet --cloud-provider=\\\nexternal\n"),
		Entry(nil, "# the cloud\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
	)

	DescribeTable("does not find",
		func(text string) { Expect(find(text)).To(BeEmpty()) },
		Entry("another value", "KUBELET_EXTRA_ARGS=--cloud-provider=external-openstack"),
		Entry("no value", "KUBELET_EXTRA_ARGS=--cloud-provider= --v=2"),
		Entry("another flag", "--cloud-provider-gce-lb-src-cidrs=external"),
		Entry("a comment", "# --cloud-provider=external\nKUBELET_EXTRA_ARGS=\n"),
		Entry("a program", "\x7fELF --cloud-provider=external"),
		Entry("an empty file", ""),
	)

	It("does not read the manifests of static Pods", func() {
		Expect(ignition.FindExternalCloudProvider(file("/etc/kubernetes/manifests/kube-controller-manager.yaml", "- --cloud-provider=external"))).To(BeEmpty())
	})

	It("reads drop-ins, units and kernel arguments, and names where the flag is", func() {
		config := ignition.New()
		config.Systemd.Units = []types.Unit{{Name: "kubelet.service", Dropins: []types.Dropin{
			{Name: "10-a.conf"}, {Name: "20-cloud.conf", Contents: ptr.To("[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--cloud-provider=external\n")}}}}
		Expect(ignition.FindExternalCloudProvider(config)).To(Equal("drop-in 20-cloud.conf of unit kubelet.service"))
		config.Systemd.Units = []types.Unit{{Name: "flags.service", Contents: ptr.To("[Service]\nExecStart=/bin/sh -c 'echo F=--cloud-provider=external >/run/kubelet.env'\n")}}
		Expect(ignition.FindExternalCloudProvider(config)).To(Equal("unit flags.service"))
		config.KernelArguments.ShouldExist = []types.KernelArgument{"systemd.setenv=KUBELET_EXTRA_ARGS=--cloud-provider=external"}
		Expect(ignition.FindExternalCloudProvider(config)).To(Equal("kernelArguments systemd.setenv=KUBELET_EXTRA_ARGS=--cloud-provider=external"))
	})
})
