package registration_test

import (
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

var _ = Describe("The kubelet flags of a registration", func() {
	It("contain everything that a kubelet can set, in a fixed order", func() {
		in := infraInput()
		in.Pool.Spec.Node.Taints = []nodev1.Taint{{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}}
		in.Config.Spec.Node.Labels = map[string]string{"example.com/rack": "r1", "topology.kubernetes.io/zone": "z1"}
		in.Machine.Labels = map[string]string{"node-restriction.kubernetes.io/tenant": "a"}
		registration, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(registration.KubeletArgs()).To(Equal([]string{
			"--hostname-override=infra-x7k2p",
			"--node-labels=example.com/rack=r1,poolboot.io/pool=infra,topology.kubernetes.io/zone=z1",
			"--provider-id=metal3://metal/rack1-u12/infra-m3m",
			"--register-with-taints=infra=reserved:NoSchedule,node.cluster.x-k8s.io/uninitialized=:NoSchedule," +
				"poolboot.io/unassigned=:NoSchedule",
		}))
	})

	It("are the same when the BareMetalHost has another UID, as after a move, so that no kubelet restarts", func() {
		in := infraInput()
		before, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		in.HostUID = "0c4b1d3e-6a1f-4c55-9d0e-2f8a7b9c1e30"
		after, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Labels).NotTo(Equal(before.Labels))
		Expect(after.KubeletArgs()).To(Equal(before.KubeletArgs()))
	})

	DescribeTable("contain a label only if a kubelet accepts it",
		func(key string, may bool) { Expect(registration.KubeletCanSet(key)).To(Equal(may)) },
		Entry(nil, "poolboot.io/pool", true),
		Entry(nil, "metal3.io/uuid", true),
		Entry(nil, "example.com/rack", true),
		Entry(nil, "rack", true),
		Entry(nil, "kubernetes.io/hostname", true),
		Entry(nil, "topology.kubernetes.io/zone", true),
		Entry(nil, "node.kubernetes.io/anything", true),
		Entry(nil, "kubelet.kubernetes.io/anything", true),
		Entry(nil, "sub.node.kubernetes.io/anything", true),
		Entry(nil, "node-role.kubernetes.io/infra", false),
		Entry(nil, "node-restriction.kubernetes.io/tenant", false),
		Entry(nil, "kubernetes.io/role", false),
		Entry(nil, "k8s.io/anything", false),
		Entry(nil, "sub.k8s.io/anything", false),
	)
})

// FuzzKubeletArgs checks that each flag is one word that needs no quotes, for any label and taint that Register
// accepts.
func FuzzKubeletArgs(f *testing.F) {
	f.Add("example.com/rack", "r1", "infra", "reserved")
	f.Add("a", "--x", "b\nExecStart=/bin/sh", "$HOME")
	f.Fuzz(func(t *testing.T, labelKey, labelValue, taintKey, taintValue string) {
		in := infraInput()
		in.Config.Spec.Node.Labels = map[string]string{labelKey: labelValue}
		in.Config.Spec.Node.Taints = []nodev1.Taint{{Key: taintKey, Value: taintValue, Effect: corev1.TaintEffectNoSchedule}}
		registration, err := registration.Register(*in)
		if err != nil {
			return
		}
		if len(validation.IsQualifiedName(labelKey)) > 0 {
			t.Errorf("label key %q got through", labelKey)
		}
		for _, arg := range registration.KubeletArgs() {
			if !strings.HasPrefix(arg, "--") || strings.ContainsAny(arg, " \t\r\n\"'\\$%#;") {
				t.Errorf("%q is not one plain word", arg)
			}
		}
	})
}
