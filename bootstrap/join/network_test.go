package join_test

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
)

var _ = Describe("The network data of a host", func() {
	It("is in its first configuration and in what it keeps, and is not checked before the join", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		sums := func(files []types.File) (sums string) {
			for _, f := range files {
				if f.Path == "/etc/poolboot/check.sha256" {
					sums = *f.Contents.Source
				}
			}
			return sums
		}
		before := sums(overlayOf(in, "amd64").Storage.Files)
		Expect(before).NotTo(BeEmpty())
		in.Network = []networkdata.File{{Path: "/etc/NetworkManager/system-connections/a.nmconnection", Mode: 0o600, Contents: []byte("[ipv4]\n")}}
		file := And(HaveField("Path", in.Network[0].Path), HaveField("Mode", ptr.To(0o600)), HaveField("Overwrite", ptr.To(true)),
			HaveField("Contents.Source", ptr.To("data:;base64,W2lwdjRdCg==")))
		first := overlayOf(in, "amd64").Storage.Files
		Expect(first).To(ContainElement(file))
		Expect(sums(first)).To(Equal(before))
		Expect(machineOf(assignmentOf(in)).Storage.Files).To(ContainElement(file))
	})
})
