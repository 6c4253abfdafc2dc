package ignition_test

import (
	"encoding/json"
	"math/rand"
	"reflect"

	"github.com/coreos/ignition/v2/config/util"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("Marshal", func() {
	It("writes every field as encoding/json does, with sorted keys and without empty objects", func() {
		everything, _ := util.NonZeroValue(reflect.TypeFor[ignition.Config]()).Interface().(ignition.Config)
		Expect(marshal(everything)).To(Equal(marshalledTwice(everything)))
		Expect(marshal(ignition.Config{})).To(Equal(marshalledTwice(ignition.Config{})))
	})

	DescribeTable("writes special values as encoding/json does",
		func(document string) { Expect(marshal(parse(document))).To(Equal(marshalledTwice(parse(document)))) },
		Entry("an entry in every list", whole),
		Entry("empty lists and empty strings", `{"ignition":{"version":"3.5.0"},"storage":{"files":[],"luks":[{"name":"k","device":"/dev/a","clevis":{"tang":[]}}]},
			"systemd":{"units":[{"name":"a.service","contents":"","dropins":[]}]}}`),
		Entry("characters that are escaped for HTML", `{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit]\nDescription=<&>"}]}}`),
		Entry("each character that must be escaped", `{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"a<"},{"name":"a>"},{"name":"a&"},
			{"name":"a\""},{"name":"a\\"},{"name":"a\u0001"},{"name":"a\u007f"},{"name":"\u00e4"},{"name":"a\u2028"},{"name":"plain"}]}}`),
	)

	It("writes random configurations as encoding/json does", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 100 {
			config := anyConfig(random)
			Expect(marshal(config)).To(Equal(marshalledTwice(config)))
		}
	})
})

// marshalledTwice returns a configuration as encoding/json writes it, with keys that are sorted by way of maps.
func marshalledTwice(config ignition.Config) string {
	GinkgoHelper()
	raw, err := json.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	var tree map[string]any
	Expect(json.Unmarshal(raw, &tree)).To(Succeed())
	prune(tree)
	raw, err = json.Marshal(tree)
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// prune removes empty objects that are values of objects.
func prune(node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			prune(value)
			if object, ok := value.(map[string]any); ok && len(object) == 0 {
				delete(node, key)
			}
		}
	case []any:
		for _, value := range node {
			prune(value)
		}
	}
}
