package main

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("What the config server keeps of an object", func() {
	type secrets = kind[*corev1.Secret, string, string]
	var k *secrets
	var changes []string
	BeforeEach(func() {
		changes = nil
		k = newKind(&corev1.Secret{}, client.Object.GetName, withoutError(func(s *corev1.Secret) string { return s.Labels["value"] }))
	})
	secret := func(name, value string) any {
		GinkgoHelper()
		stored, err := k.transform(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: "1", Labels: map[string]string{"value": value}},
			Data:       map[string][]byte{"large": nil},
		})
		Expect(err).NotTo(HaveOccurred())
		return stored
	}
	// valueOf returns what is served for a key.
	valueOf := func(key string) *string {
		GinkgoHelper()
		value, err := k.Get(context.Background(), key)
		Expect(err).NotTo(HaveOccurred())
		return value
	}
	change := func(before, after any) {
		k.change(before, after, func(key string, before, after *string) {
			text := key + ":"
			for _, each := range []*string{before, after} {
				if each == nil {
					text += " none"
				} else {
					text += " " + *each
				}
			}
			changes = append(changes, text)
		})
	}

	It("is found by its key", func() {
		one, other := secret("one", "1"), secret("other", "2")
		change(nil, one)
		change(nil, other)
		Expect(valueOf("one")).To(HaveValue(Equal("1")))
		updated := secret("one", "3")
		change(one, updated)
		Expect(valueOf("one")).To(HaveValue(Equal("3")))
		Expect(valueOf("other")).To(HaveValue(Equal("2")))
		change(updated, nil)
		Expect(valueOf("one")).To(BeNil())
		change(toolscache.DeletedFinalStateUnknown{Obj: other}, nil)
		Expect(valueOf("other")).To(BeNil())
		Expect(k.values).To(BeEmpty())
		Expect(changes).To(Equal([]string{"one: none 1", "other: none 2", "one: 1 3", "one: 3 none", "other: 2 none"}))
	})

	It("does not change after it is returned", func() {
		one := secret("one", "1")
		change(nil, one)
		returned := valueOf("one")
		change(one, secret("one", "2"))
		Expect(returned).To(HaveValue(Equal("1")))
	})

	It("replaces the object in the informer, and is computed once", func() {
		stored := secret("one", "1")
		Expect(stored).NotTo(BeAssignableToTypeOf(&corev1.Secret{}))
		Expect(k.transform(stored)).To(BeIdenticalTo(stored))
		Expect(toolscache.MetaNamespaceKeyFunc(stored)).To(Equal("a/one"))
	})

	It("is packed once for each version of a rendered config, however often it is listed", func() {
		config := &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"nosmt"}}}
		var err error
		config.Name, err = pool.NameFor("infra", config.Spec)
		Expect(err).NotTo(HaveOccurred())
		config.Namespace, config.UID, config.Generation = "a", "1", 1
		name := types.NamespacedName{Namespace: "a", Name: config.Name}
		configs := newRenderedConfigs()
		list := func(change func()) any {
			change()
			stored, err := configs.transform(config)
			Expect(err).NotTo(HaveOccurred())
			configs.change(nil, stored, func(types.NamespacedName, *server.PoolBytes, *server.PoolBytes) {})
			served, err := configs.Get(context.Background(), name)
			if err != nil {
				return err.Error()
			}
			return served
		}
		first := list(func() {})
		Expect(list(func() { config.Labels = map[string]string{"a": "b"} })).To(BeIdenticalTo(first))
		Expect(list(func() { config.UID = "2" })).NotTo(BeIdenticalTo(first))
		Expect(list(func() { config.Generation, config.Spec.KernelArguments = 2, nil })).To(ContainSubstring("was changed"))
	})
})
