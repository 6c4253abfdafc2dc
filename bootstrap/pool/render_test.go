package pool_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// infratest is the MachineConfig in the Machine Config Operator's documentation of custom pools.
var infratest = withIgnition("51-infra", "infra", `{"ignition":{"version":"2.2.0"},"storage":{"files":[
	{"contents":{"source":"data:,infra"},"filesystem":"root","mode":420,"path":"/etc/infratest"}]}}`)

var _ = Describe("Render", func() {
	pools := []poolv1.MachineConfigPool{newPool("worker"), newPool("infra")}
	configs := []poolv1.MachineConfig{
		infratest,
		newConfig("99-worker", "worker", "/etc/motd", "worker"),
		newConfig("00-worker", "worker", "/etc/issue", "worker"),
		newConfig("50-infra", "infra", "/etc/motd", "infra"),
		newConfig("10-storage", "storage", "/etc/motd", "storage"),
	}
	configs[1].Spec.KernelArguments = []string{"nosmt", "quiet"}
	configs[1].Spec.KernelType = poolv1.KernelTypeRealtime
	configs[1].Spec.Extensions = []string{"usbguard"}
	configs[0].Spec.KernelArguments = []string{"quiet", "hugepages=4"}
	configs[0].Spec.FIPS = ptr.To(true)
	configs[0].Spec.OSImageURL = "registry.example/os:2"
	configs[2].Spec.OSImageURL = "registry.example/os:1"

	render := func(role string, configs ...poolv1.MachineConfig) *pool.Rendered {
		GinkgoHelper()
		rendered, err := pool.Render(role, pools, configs)
		Expect(err).NotTo(HaveOccurred())
		return rendered
	}
	// files maps the paths of the rendered files to their sources.
	files := func(rendered *pool.Rendered) map[string]string {
		GinkgoHelper()
		config, err := ignition.Parse(rendered.Spec.Config.Raw)
		Expect(err).NotTo(HaveOccurred())
		files := map[string]string{}
		for _, file := range config.Storage.Files {
			files[file.Path] = *file.Contents.Source
		}
		return files
	}

	It("merges the MachineConfigs of worker, then those of the custom pool, each in the order of names", func() {
		rendered := render("infra", configs...)
		Expect(rendered.Source).To(Equal([]string{"00-worker", "99-worker", "50-infra", "51-infra"}))
		Expect(files(rendered)).To(Equal(map[string]string{
			"/etc/issue": "data:,worker", "/etc/motd": "data:,infra", "/etc/infratest": "data:,infra",
		}))
	})

	It("merges only the MachineConfigs of the control plane for its pool, without a pool worker", func() {
		own := newConfig("50-etcd", "control-plane", "/etc/motd", "control-plane")
		rendered, err := pool.Render("control-plane", []poolv1.MachineConfigPool{newPool("control-plane")}, append(configs, own))
		Expect(err).NotTo(HaveOccurred())
		Expect(rendered.Source).To(Equal([]string{"50-etcd"}))
		Expect(pool.RenderedBy(append(pools, newPool("control-plane")), configs[2].Labels)).To(Equal(pools))
	})

	It("merges only worker's own MachineConfigs for worker", func() {
		rendered := render("worker", configs...)
		Expect(rendered.Source).To(Equal([]string{"00-worker", "99-worker"}))
		Expect(files(rendered)).To(HaveKeyWithValue("/etc/motd", "data:,worker"))
	})

	It("merges a MachineConfig that both pools select once, among those of worker", func() {
		both := newPool("infra")
		both.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			requirement(roleLabel, metav1.LabelSelectorOpIn, "worker", "infra")}}
		rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{pools[0], both}, configs)
		Expect(err).NotTo(HaveOccurred())
		Expect(rendered).To(Equal(render("infra", configs...)))
	})

	It("concatenates arguments and extensions, and lets the last kernel and image win", func() {
		spec := render("infra", configs...).Spec
		Expect(spec.KernelArguments).To(Equal([]string{"nosmt", "quiet", "quiet", "hugepages=4"}))
		Expect(spec.Extensions).To(Equal([]string{"usbguard"}))
		Expect(spec.FIPS).To(HaveValue(BeTrue()))
		Expect(spec.KernelType).To(Equal(poolv1.KernelTypeRealtime))
		Expect(spec.OSImageURL).To(Equal("registry.example/os:2"))
	})

	It("renders a pool without MachineConfigs", func() {
		rendered := render("worker")
		Expect(rendered.Source).To(BeEmpty())
		Expect(rendered.Spec).To(Equal(poolv1.MachineConfigSpec{
			Config: &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"}}`)}, FIPS: ptr.To(false), KernelType: "default"}))
	})

	It("ignores rendered configs", func() {
		byName, byLabel := newConfig("rendered-infra-1", "infra", "/etc/a", "a"), newConfig("mine", "infra", "/etc/b", "b")
		byLabel.Labels[poolv1.RenderedForLabel] = "infra"
		Expect(render("infra", append(slices.Clone(configs), byName, byLabel)...)).To(Equal(render("infra", configs...)))
	})

	It("selects nothing with an empty selector", func() {
		none := newPool("infra")
		none.Spec.MachineConfigSelector = &metav1.LabelSelector{}
		rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{pools[0], none}, configs)
		Expect(err).NotTo(HaveOccurred())
		Expect(rendered.Source).To(Equal([]string{"00-worker", "99-worker"}))
	})

	It("reads Butane", func() {
		butane := poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "60-butane", Labels: map[string]string{roleLabel: "infra"}}}
		butane.Spec.Butane = "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/butane\n    contents: {inline: hi}\n"
		Expect(files(render("infra", butane))).To(Equal(map[string]string{"/etc/butane": "data:,hi"}))
	})

	It("gives the same name and bytes for the same input, regardless of its order", func() {
		want, shuffled := render("infra", configs...), slices.Clone(configs)
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 20 {
			random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			Expect(render("infra", shuffled...)).To(Equal(want))
		}
	})

	It("changes the custom pool's name when a MachineConfig of worker changes", func() {
		before, changed := render("infra", configs...).Name, slices.Clone(configs)
		changed[2] = newConfig("00-worker", "worker", "/etc/issue", "changed")
		Expect(render("infra", changed...).Name).NotTo(Equal(before))
	})

	It("equals the golden file", func() {
		rendered := render("infra", configs...)
		Expect(rendered.Name).To(MatchRegexp(`^rendered-infra-[0-9a-f]{32}$`))
		document, err := json.MarshalIndent(rendered, "", "  ")
		Expect(err).NotTo(HaveOccurred())
		expectGolden("rendered.json", document, rendered.Spec.Config.Raw)
	})

	DescribeTable("names the MachineConfig that can't be rendered, and the field",
		func(broken poolv1.MachineConfig, message string) {
			_, err := pool.Render("infra", pools, append(slices.Clone(configs), broken))
			Expect(err).To(BeAssignableToTypeOf(&pool.RenderError{}))
			Expect(err).To(MatchError(ContainSubstring(`MachineConfig "` + broken.Name + `"`)))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("Ignition that does not parse", withIgnition("52-broken", "infra", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":"0644"}]}}`),
			"spec.config: storage.files[0].mode: must be a whole number"),
		Entry("unknown version", withIgnition("52-broken", "infra", `{"ignition":{"version":"4.0.0"}}`), "spec.config: ignition.version"),
		Entry("butane with errors", poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "52-broken", Labels: map[string]string{roleLabel: "infra"}},
			Spec: poolv1.MachineConfigSpec{Butane: "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: a\n"}}, "spec.butane: storage.files[0].path (line 5)"),
		Entry("butane and Ignition", poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "52-broken", Labels: map[string]string{roleLabel: "infra"}},
			Spec: poolv1.MachineConfigSpec{Config: infratest.Spec.Config, Butane: "a: b"}}, "spec: set config (Ignition) or butane, not both"),
		Entry("a reserved path", newConfig("52-broken", "infra", "/etc/hostname", "a"), "spec.config: storage.files[0].path: /etc/hostname is reserved for Poolboot"),
		Entry("a reserved unit", withIgnition("52-broken", "worker", `{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"kubelet.service","contents":"[Unit]"}]}}`),
			"kubelet.service is reserved for Poolboot"),
		Entry("a reserved flag", newConfig("52-broken", "infra", "/etc/sysconfig/kubelet", "A=--node-labels=a=b"), "--node-labels"),
		Entry("a link above a reserved path", withIgnition("52-broken", "infra", `{"ignition":{"version":"3.2.0"},"storage":{"links":[{"path":"/etc","target":"/opt"}]}}`),
			"must be a directory"),
	)

	It("names the MachineConfig that makes the merged Ignition invalid", func() {
		link := withIgnition("10-link", "worker", `{"ignition":{"version":"3.2.0"},"storage":{"links":[{"path":"/opt/a","target":"/opt/b"}]}}`)
		_, err := pool.Render("infra", pools, []poolv1.MachineConfig{link, newConfig("20-file", "infra", "/opt/a/b", "b"), infratest})
		Expect(err).To(MatchError(And(ContainSubstring(`MachineConfig "20-file"`), ContainSubstring("storage.files[0]"))))
	})

	It("refuses a MachineConfig that is given twice", func() {
		_, err := pool.Render("infra", pools, append(slices.Clone(configs), infratest))
		Expect(err).To(MatchError(`MachineConfig "51-infra" is given twice: remove one`))
	})

	It("refuses a rendered config that does not fit into etcd, and names the largest MachineConfigs", func() {
		large := newConfig("52-large", "infra", "/etc/large", strings.Repeat("a", pool.MaxSize))
		_, err := pool.Render("infra", pools, append(slices.Clone(configs), large))
		var tooLarge *pool.TooLargeError
		Expect(errors.As(err, &tooLarge)).To(BeTrue(), "%v", err)
		Expect(tooLarge.Size).To(BeNumerically(">", pool.MaxSize))
		Expect(tooLarge.Largest).To(HaveLen(3))
		Expect(err).To(MatchError(And(ContainSubstring("52-large (14"), ContainSubstring(`MachineConfigPool "infra"`))))
	})

	It("refuses more MachineConfigs than the pool's status can list", func() {
		var many []poolv1.MachineConfig
		for i := range pool.MaxSources {
			many = append(many, poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("60-%d", i), Labels: map[string]string{roleLabel: "infra"}}})
		}
		rendered, err := pool.Render("infra", pools, many)
		Expect(err).NotTo(HaveOccurred())
		Expect(rendered.Source).To(HaveLen(pool.MaxSources))
		_, err = pool.Render("infra", pools, append(many, infratest))
		var tooMany *pool.TooManyError
		Expect(errors.As(err, &tooMany)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(And(ContainSubstring(`MachineConfigPool "infra" selects 1001 MachineConfigs`), ContainSubstring("spec.machineConfigSelector"))))
	})

	DescribeTable("refuses pools that it can't render",
		func(role string, pools []poolv1.MachineConfigPool, expected error) {
			_, err := pool.Render(role, pools, configs)
			Expect(err).To(BeAssignableToTypeOf(expected))
		},
		Entry("an unknown role", "gpu", pools, &pool.NotFoundError{}),
		Entry("a cluster without a worker pool", "infra", pools[1:], &pool.NotFoundError{}),
		Entry("two pools of the role", "infra", []poolv1.MachineConfigPool{pools[0], pools[1], pools[1]}, &pool.DuplicateError{}),
		Entry("a malformed selector", "infra", []poolv1.MachineConfigPool{pools[0], func() poolv1.MachineConfigPool {
			p := newPool("infra")
			p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement("a", "Near")}}
			return p
		}()}, &pool.SelectorError{}),
	)
})

var _ = Describe("NameFor", func() {
	spec := infratest.Spec

	It("depends on the content, not on the order of keys", func() {
		reordered := spec
		reordered.Config = &runtime.RawExtension{Raw: []byte(`{"storage": {"files":[{"path":"/etc/infratest","mode":420,
			"filesystem":"root","contents":{"source":"data:,\u0069nfra"}}]}, "ignition": {"version":"2.2.0"}}`)}
		want, err := pool.NameFor("infra", spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(pool.NameFor("infra", reordered)).To(Equal(want))
	})

	It("changes with the content", func() {
		changed := spec
		changed.KernelArguments = []string{"quiet"}
		want, err := pool.NameFor("infra", spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(pool.NameFor("infra", changed)).NotTo(Equal(want))
	})

	It("refuses a pool name that is too long for a label", func() {
		_, err := pool.NameFor(strings.Repeat("a", 64), spec)
		Expect(err).To(MatchError(ContainSubstring("use a shorter name")))
	})
})

var _ = DescribeTable("HasSameContent compares the hashes in two rendered configs' names",
	func(a, b string, same bool) { Expect(pool.HasSameContent(a, b)).To(Equal(same)) },
	Entry("the same name", "rendered-infra-70495f856a7636eacd49cffc2baca46d", "rendered-infra-70495f856a7636eacd49cffc2baca46d", true),
	Entry("two pools", "rendered-infra-70495f856a7636eacd49cffc2baca46d", "rendered-worker-70495f856a7636eacd49cffc2baca46d", true),
	Entry("two contents", "rendered-infra-70495f856a7636eacd49cffc2baca46d", "rendered-infra-80495f856a7636eacd49cffc2baca46d", false),
	Entry("no hash, and the same ending", "rendered-a-cafe", "rendered-b-cafe", false),
	Entry("an empty name", "rendered-infra-70495f856a7636eacd49cffc2baca46d", "", false),
	Entry("names of other MachineConfigs", "00-worker", "01-worker", false),
)

var _ = Describe("Served", func() {
	It("adds kernel arguments, each once, and the fields that Ignition can't express", func() {
		spec := poolv1.MachineConfigSpec{
			Config:          &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldExist":["quiet"],"shouldNotExist":["nosmt"]}}`)},
			KernelArguments: []string{"nosmt", `nosmt hugepages=4 dyndbg="file a.c +p"`}, Extensions: []string{"usbguard"},
			FIPS: ptr.To(true), KernelType: "realtime", OSImageURL: "registry.example/os:2",
		}
		served, err := pool.Served("rendered-infra-1", spec)
		Expect(err).NotTo(HaveOccurred())
		expectGolden("served.ign", served, served)
		Expect(pool.Served("rendered-infra-1", spec)).To(Equal(served))
	})

	It("serves a config without Ignition", func() {
		served, err := pool.Served("rendered-infra-1", poolv1.MachineConfigSpec{})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(served)).To(ContainSubstring(ignition.MachineConfigPath))
	})

	It("adds the image of extensions if a MachineConfig sets it", func() {
		served, err := pool.Served("rendered-infra-1", poolv1.MachineConfigSpec{BaseOSExtensionsContainerImage: "registry.example/extensions:2"})
		Expect(err).NotTo(HaveOccurred())
		config, err := ignition.Parse(served)
		Expect(err).NotTo(HaveOccurred())
		told, err := dataurl.DecodeString(*config.Storage.Files[0].Contents.Source)
		Expect(err).NotTo(HaveOccurred())
		Expect(told.Data).To(MatchJSON(`{"name":"rendered-infra-1","kernelType":"","extensions":[],"fips":false,"osImageURL":"",
			"kernelArguments":[],"baseOSExtensionsContainerImage":"registry.example/extensions:2"}`))
	})

	It("refuses a config with invalid Ignition, and names it", func() {
		_, err := pool.Served("rendered-infra-1", poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: []byte(`{}`)}})
		Expect(err).To(MatchError(ContainSubstring(`MachineConfig "rendered-infra-1": spec.config: ignition.version`)))
	})
})
