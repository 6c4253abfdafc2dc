package nodelabels

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

var _ = Describe("Facts", func() {
	// sameFields expects that a fact has the fields that its type declares.
	var sameFields func(path string, declared *apiservercel.DeclType, fact any)
	sameFields = func(path string, declared *apiservercel.DeclType, fact any) {
		switch {
		case declared.IsObject():
			object, ok := fact.(map[string]any)
			Expect(ok).To(BeTrue(), path)
			Expect(slices.Sorted(maps.Keys(object))).To(Equal(slices.Sorted(maps.Keys(declared.Fields))), path)
			for name, field := range declared.Fields {
				sameFields(path+"."+name, field.Type, object[name])
			}
		case declared.IsList():
			Expect(reflect.ValueOf(fact).Len()).To(BeNumerically(">", 0), path)
			sameFields(path+"[0]", declared.ElemType, reflect.ValueOf(fact).Index(0).Interface())
		default:
			Expect(fact).NotTo(BeNil(), path)
		}
	}

	It("have exactly the fields that the types declare", func() {
		facts := theFacts()
		Expect(slices.Sorted(maps.Keys(facts.values))).To(Equal(slices.Sorted(maps.Keys(variables))))
		for name, declared := range variables {
			sameFields(name, declared, facts.values[name])
		}
	})

	It("are not larger than declared, whatever the host reports", func() {
		large := strings.Repeat("ü", 10_000)
		host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: large, Annotations: map[string]string{"note": large}, Labels: map[string]string{}}}
		for i := range 3000 {
			host.Labels[strings.Repeat("l", i)] = large
		}
		hardware := &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: large},
			Storage: make([]bmov1alpha1.Storage, 5000), NIC: make([]bmov1alpha1.NIC, 5000)}
		facts := NewFacts(host, hardware, nil, nil)
		for expression, size := range map[string]string{
			`string(host.name.size())`: "253", `string(host.annotations["note"].size())`: "4096", `string(host.hardware.vendor.size())`: "1024",
			`string(host.labels["lll"].size())`: "63", `string(host.labels.map(k, k.size()).max())`: "317",
			`string(host.hardware.disks.size())`: "512", `string(host.hardware.nics.size())`: "512",
		} {
			Expect(given(facts, expression).Value).To(Equal(size), expression)
		}
	})
})
