package pool_test

import (
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("What a rendered config was rendered from", func() {
	var (
		pools   []poolv1.MachineConfigPool
		configs []poolv1.MachineConfig
	)
	BeforeEach(func() {
		pools = []poolv1.MachineConfigPool{newPool("worker"), newPool("infra"), newPool("gpu")}
		configs = []poolv1.MachineConfig{newConfig("00-worker", "worker", "/a", "w"), newConfig("50-infra", "infra", "/b", "i"), newConfig("60-infra", "infra", "/c", "i")}
	})
	// render returns the rendered config of a pool with its record.
	render := func(role string) *poolv1.MachineConfig {
		GinkgoHelper()
		rendered, err := pool.Render(role, pools, configs)
		Expect(err).NotTo(HaveOccurred())
		from, err := pool.RenderedFrom(role, pools, configs)
		Expect(err).NotTo(HaveOccurred())
		c := &poolv1.MachineConfig{Spec: rendered.Spec}
		c.Name, c.Annotations = rendered.Name, map[string]string{poolv1.RenderedFromAnnotation: from}
		return c
	}
	misfits := func(of *poolv1.MachineConfig, role string) (names []string) {
		GinkgoHelper()
		found, isKnown := pool.FindMisfits(of, role, pools, configs)
		Expect(isKnown).To(BeTrue())
		for _, m := range found {
			names = append(names, m.String())
		}
		return names
	}

	It("names the MachineConfigs in the order of the merge", func() {
		Expect(pool.SourcesOf(render("infra"))).To(HaveExactElements(HaveField("Name", "00-worker"), HaveField("Name", "50-infra"), HaveField("Name", "60-infra")))
		Expect(pool.SourcesOf(nil)).To(BeEmpty())
	})

	It("says which MachineConfigs no longer fit: changed, removed and added, inherited or its own", func() {
		earlier := render("infra")
		Expect(misfits(earlier, "infra")).To(BeEmpty())
		configs[0] = newConfig("00-worker", "worker", "/a", "changed")
		configs[1].Labels[roleLabel] = "gpu"
		configs = append(configs, newConfig("70-infra", "infra", "/d", "i"))
		Expect(misfits(earlier, "infra")).To(Equal([]string{"MachineConfig 00-worker (changed)", "MachineConfig 50-infra (removed)", "MachineConfig 70-infra (added)"}))
	})

	It("says which pool has other settings of the kubelet", func() {
		pools[0].Spec.Kubelet.AutoSizingReserved = new(true)
		earlier := render("infra")
		pools[0].Spec.Kubelet.AutoSizingReserved, pools[1].Spec.Kubelet.AutoSizingReserved = new(false), new(true)
		Expect(misfits(earlier, "infra")).To(Equal([]string{"spec.kubelet of MachineConfigPool worker (changed)", "spec.kubelet of MachineConfigPool infra (added)"}))
	})

	It("does not change with what is not rendered, or the order of keys", func() {
		earlier := render("infra")
		configs[1].Annotations, configs[1].Generation, configs[1].UID = map[string]string{"a": "b"}, 7, "moved"
		pools[1].Spec.Paused, pools[1].Spec.ConfigurationName = new(true), earlier.Name
		configs[1].Spec.Config.Raw = []byte(strings.Replace(string(configs[1].Spec.Config.Raw), "{", "{ ", 1))
		Expect(misfits(earlier, "infra")).To(BeEmpty())
	})

	It("says which other rendered configs have what no longer fits", func() {
		earlier, gpuEarlier := render("worker"), render("gpu")
		configs[0] = newConfig("00-worker", "worker", "/a", "changed")
		found, _ := pool.FindMisfits(earlier, "worker", pools, configs)
		Expect(pool.HasMisfit(render("gpu"), found, true)).To(BeTrue())
		Expect(pool.HasMisfit(gpuEarlier, found, true)).To(BeFalse())

		By("removing it")
		configs = configs[1:]
		found, _ = pool.FindMisfits(earlier, "worker", pools, configs)
		Expect(pool.HasMisfit(render("gpu"), found, true)).To(BeTrue())
		Expect(pool.HasMisfit(render("gpu"), found, false)).To(BeFalse(), "a pool that does not inherit never had it")
		Expect(pool.HasMisfit(gpuEarlier, found, true)).To(BeFalse())
	})

	It("is left out if it is too long, and never longer than an annotation can be", func() {
		for i := range 400 {
			configs = append(configs, newConfig(strings.Repeat("x", 200)+fmt.Sprint(i), "infra", fmt.Sprint("/f", i), "i"))
		}
		Expect(pool.RenderedFrom("infra", pools, configs)).To(BeEmpty())
	})

	DescribeTable("is not known if the annotation is", func(value string) {
		c := render("infra")
		if c.Annotations[poolv1.RenderedFromAnnotation] = value; value == "absent" {
			c.Annotations = nil
		}
		found, isKnown := pool.FindMisfits(c, "infra", pools, configs)
		Expect(isKnown).To(BeFalse())
		Expect(found).To(BeEmpty())
		Expect(pool.SourcesOf(c)).To(BeEmpty())
		Expect(pool.HasMisfit(c, []pool.Misfit{{How: "removed"}}, true)).To(BeFalse())
	},
		Entry(nil, "absent"), Entry(nil, "50-infra"), Entry(nil, "50-infra=1"), Entry(nil, "50-infra=XYZ01234"), Entry(nil, "../a=01234567"),
		Entry(nil, "50-infra=01234567,"), Entry("too long", strings.Repeat("a=01234567,", 10000)+"a=01234567"), Entry("too many", strings.Repeat("a=01234567,", 1002)+"a=01234567"),
	)
})

// FuzzRenderedFrom checks that a record that a user has changed leads to valid names only, and to no panic.
func FuzzRenderedFrom(f *testing.F) {
	f.Add("50-infra=01234567,MachineConfigPool/infra=01234567")
	f.Add("a=01234567,,=,MachineConfigPool/=")
	f.Fuzz(func(t *testing.T, value string) {
		c := &poolv1.MachineConfig{}
		c.Annotations = map[string]string{poolv1.RenderedFromAnnotation: value}
		for _, source := range pool.SourcesOf(c) {
			if source.Name == "" || len(source.Name) > 253 || strings.Trim(source.Name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
				t.Errorf("%q is no name of a MachineConfig", source.Name)
			}
		}
		pool.FindMisfits(c, "infra", []poolv1.MachineConfigPool{newPool("worker"), newPool("infra")}, nil)
	})
}
