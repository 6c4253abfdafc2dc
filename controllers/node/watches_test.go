package node

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

var _ = Describe("A BareMetalHost triggers a reconcile of its Node", func() {
	host := func(state bmov1alpha1.ProvisioningState) *bmov1alpha1.BareMetalHost {
		h := &bmov1alpha1.BareMetalHost{}
		h.Status.Provisioning.State = state
		return h
	}
	update := func(before, after *bmov1alpha1.BareMetalHost) bool {
		return hostChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}

	It("when it is created, as after a move, which gives it another UID", func() {
		Expect(hostChanged().Create(event.CreateEvent{Object: host("")})).To(BeTrue())
	})

	It("without a Machine, when its state is restored later", func() {
		Expect(update(host(""), host(bmov1alpha1.StateProvisioned))).To(BeTrue())
		Expect(update(host(bmov1alpha1.StateProvisioned), host(bmov1alpha1.StateProvisioned))).To(BeFalse())
		taken := host(bmov1alpha1.StateProvisioned)
		taken.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine"}
		Expect(update(host(""), taken)).To(BeFalse(), "its Metal3Machine identifies it")
	})
})
