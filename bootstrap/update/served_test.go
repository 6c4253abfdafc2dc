package update_test

import (
	"encoding/json"
	"math/rand"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("A served rendered config", func() {
	serve := func(name string, s poolv1.MachineConfigSpec) update.Config {
		GinkgoHelper()
		s.KernelType = parse(s).OS.KernelType
		document, err := pool.Served(name, s)
		Expect(err).NotTo(HaveOccurred())
		served, config, err := update.ParseServed(document)
		Expect(err).NotTo(HaveOccurred())
		Expect(served).To(Equal(name))
		return config
	}

	marshal := func(operations []update.Operation) []byte {
		document, err := json.Marshal(operations)
		Expect(err).NotTo(HaveOccurred())
		return document
	}

	It("leads to the same plan, beside its own file", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 100 {
			before, after := anySpec(random, true), anySpec(random, true)
			want := update.New(parse(before), parse(after), update.DefaultPolicy(), update.AllCapabilities)
			got := update.New(serve("a", before), serve("b", after), update.DefaultPolicy(), update.AllCapabilities)
			Expect(got.Actions).To(Equal(want.Actions))
			Expect(got.Obstacles).To(Equal(want.Obstacles))
			Expect(got.Changes).To(HaveLen(len(want.Changes) + 1))
			operations := slices.DeleteFunc(got.Operations, func(o update.Operation) bool { return o.Name == ignition.MachineConfigPath })
			if want.IsPossible() {
				Expect(json.Marshal(operations)).To(MatchJSON(marshal(want.Operations)))
			}
		}
	})

	DescribeTable("is refused", func(document, why string) {
		_, _, err := update.ParseServed([]byte(document))
		Expect(err).To(MatchError(ContainSubstring(why)))
	},
		Entry("without the file", `{"ignition":{"version":"3.5.0"}}`, "it has no file "+ignition.MachineConfigPath),
		Entry("with another file", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"`+ignition.MachineConfigPath+`","contents":{"source":"data:,x"}}]}}`, ignition.MachineConfigPath+": "),
		Entry("that is no Ignition", `{}`, "ignition.version"),
	)
})
