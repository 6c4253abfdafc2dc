package pool_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Render of any MachineConfigs", func() {
	pools := []poolv1.MachineConfigPool{newPool("worker"), newPool("infra")}

	It("equals the merge of the reference, regardless of the order of the input", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 100 {
			configs := anyConfigs(random, 1+random.Intn(12))
			rendered, err := pool.Render("infra", pools, configs)
			Expect(err).NotTo(HaveOccurred())
			expectReference(rendered, configs)

			Expect(pool.NameFor("infra", rendered.Spec)).To(Equal(rendered.Name))
			random.Shuffle(len(configs), func(i, j int) { configs[i], configs[j] = configs[j], configs[i] })
			Expect(pool.Render("infra", pools, configs)).To(Equal(rendered))
		}
	})

	It("equals the merge one by one, for hundreds of MachineConfigs", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		configs := anyConfigs(random, 200)
		rendered, err := pool.Render("infra", pools, configs)
		Expect(err).NotTo(HaveOccurred())
		expectReference(rendered, configs)
	})
})

// anyConfigs generates MachineConfigs of both pools, often with the same entries.
func anyConfigs(random *rand.Rand, count int) []poolv1.MachineConfig {
	oneOf := func(from ...string) string { return from[random.Intn(len(from))] }
	// list generates a list of entries, at most one of each key.
	list := func(name string, keys []string, fields ...string) string {
		var entries []string
		for _, key := range keys {
			if random.Intn(3) == 0 {
				entries = append(entries, fmt.Sprintf("{%s,%s}", key, oneOf(fields...)))
			}
		}
		random.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		return fmt.Sprintf("%q:[%s]", name, strings.Join(entries, ","))
	}
	configs := make([]poolv1.MachineConfig, 0, count)
	for i := range count {
		own := fmt.Sprintf(`"path":"/own/%d"`, i)
		storage := list("files", []string{`"path":"/a"`, `"path":"/b"`, own}, `"mode":420`, `"mode":384,"user":{"id":1}`,
			`"overwrite":false,"contents":{"source":"data:,x"}`, `"contents":{"source":"data:,y"}`, `"contents":{"compression":"gzip","source":"data:;base64,H4sIAAAAAAACA6sEABUm2/sBAAAA"}`,
			`"contents":{"source":"data:,z","verification":{"hash":"sha512-5ae625665f3e0bd0a065ed07a41989e4025b79d13930a2a8c57d6b4325226707d956a082d1e91b4d96a793562df98fd03c9dcf743c9c7b4e3055d4f9f09ba015"}}`,
			`"append":[{"source":"data:,w"}]`)
		// The path /c is a directory in one MachineConfig and a link in another.
		if random.Intn(2) == 0 {
			storage += "," + list("directories", []string{`"path":"/c"`, `"path":"/d"`}, `"mode":493`, `"group":{"name":"g"}`)
		} else {
			storage += "," + list("links", []string{`"path":"/c"`}, `"target":"/x"`, `"target":"/y","hard":false`)
		}
		document := fmt.Sprintf(`{"ignition":{"version":%q},"storage":{%s},"systemd":{%s},"passwd":{%s}}`,
			oneOf("3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"), storage,
			list("units", []string{`"name":"a.service"`, `"name":"b.service"`, fmt.Sprintf(`"name":"own-%d.service"`, i)},
				`"enabled":true`, `"mask":false`, `"contents":"[Unit]"`, `"dropins":[{"name":"1.conf","contents":"[Unit]"}]`, `"dropins":[{"name":"2.conf"},{"name":"1.conf"}]`),
			list("users", []string{`"name":"core"`, `"name":"admin"`}, `"sshAuthorizedKeys":["k1"]`, `"sshAuthorizedKeys":["k2","k1"]`, `"uid":5`))
		configs = append(configs, poolv1.MachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02d-%d", random.Intn(100), i), Labels: map[string]string{roleLabel: oneOf("worker", "infra", "storage")}},
			Spec: poolv1.MachineConfigSpec{
				Config:          &runtime.RawExtension{Raw: []byte(document)},
				KernelArguments: []string{"quiet", "nosmt", "a=b"}[:random.Intn(4)],
				Extensions:      []string{"usbguard", "kdump"}[:random.Intn(3)],
				FIPS:            []*bool{nil, ptr.To(false), ptr.To(true)}[random.Intn(3)],
				KernelType:      oneOf("", "", poolv1.KernelTypeDefault, poolv1.KernelTypeRealtime),
				OSImageURL:      oneOf("", "", "registry.example/os:1", "registry.example/os:2"),

				BaseOSExtensionsContainerImage: oneOf("", "", "registry.example/extensions:1", "registry.example/extensions:2"),
			},
		})
	}
	return configs
}

// expectReference merges as the Machine Config Operator does: one by one, with Ignition's merge only, and with the
// contents of overridden files reset before. It also determines the origin of each file.
func expectReference(rendered *pool.Rendered, configs []poolv1.MachineConfig) {
	GinkgoHelper()
	var sources []poolv1.MachineConfig
	for _, role := range []string{"worker", "infra"} {
		var own []poolv1.MachineConfig
		for _, config := range configs {
			if config.Labels[roleLabel] == role {
				own = append(own, config)
			}
		}
		slices.SortFunc(own, func(a, b poolv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
		sources = append(sources, own...)
	}

	whole := types.Config{Ignition: types.Ignition{Version: "3.5.0"}}
	spec := poolv1.MachineConfigSpec{FIPS: ptr.To(false), KernelType: poolv1.KernelTypeDefault}
	var names []string
	writers := map[string]string{}
	for _, source := range sources {
		part, _, err := v3_5.ParseCompatibleVersion(source.Spec.Config.Raw)
		Expect(err).NotTo(HaveOccurred())
		for _, file := range part.Storage.Files {
			writers[file.Path] = source.Name
		}
		resetContents(&whole, part)
		whole = v3_5.Merge(whole, part)
		names = append(names, source.Name)
		spec.KernelArguments = append(spec.KernelArguments, source.Spec.KernelArguments...)
		spec.Extensions = append(spec.Extensions, source.Spec.Extensions...)
		if ptr.Deref(source.Spec.FIPS, false) {
			spec.FIPS = ptr.To(true)
		}
		if source.Spec.KernelType != "" {
			spec.KernelType = source.Spec.KernelType
		}
		if source.Spec.OSImageURL != "" {
			spec.OSImageURL = source.Spec.OSImageURL
		}
		if source.Spec.BaseOSExtensionsContainerImage != "" {
			spec.BaseOSExtensionsContainerImage = source.Spec.BaseOSExtensionsContainerImage
		}
	}
	for i := range whole.Storage.Files {
		if file := &whole.Storage.Files[i]; file.Overwrite == nil && file.Contents.Source != nil {
			file.Overwrite = ptr.To(true)
		}
	}
	raw, err := ignition.Marshal(whole)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(rendered.Spec.Config.Raw)).To(Equal(string(raw)))
	spec.Config = rendered.Spec.Config
	Expect(rendered.Spec).To(Equal(spec))
	Expect(rendered.Source).To(Equal(names))
	for _, origin := range rendered.Origins {
		if origin.Kind == pool.KindFile {
			Expect(origin.MachineConfig).To(Equal(writers[origin.Name]), origin.Name)
		}
	}
}

// resetContents removes from the files of base the fields that describe contents which over replaces.
func resetContents(base *types.Config, over types.Config) {
	base.Storage.Files = slices.Clone(base.Storage.Files)
	for _, file := range over.Storage.Files {
		for i := range base.Storage.Files {
			if base.Storage.Files[i].Path == file.Path && file.Contents.Source != nil {
				base.Storage.Files[i].Contents = types.Resource{}
			}
		}
	}
}
