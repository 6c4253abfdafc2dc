package pool_test

import (
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// fromYAML is a MachineConfig of a role whose spec is given in YAML. What it says of Ignition may leave the version
// out.
func fromYAML(name, role, spec string) poolv1.MachineConfig {
	GinkgoHelper()
	config := poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{roleLabel: role}}}
	spec = strings.ReplaceAll(spec, "config: {", `config: {ignition: {version: "3.5.0"}, `)
	Expect(yaml.UnmarshalStrict([]byte(spec), &config.Spec)).To(Succeed())
	return config
}

var _ = DescribeTable("ListChanges names a drop-in, and its unit only if that changes too:", func(before, after string, changes ...string) {
	units := func(unit string) poolv1.MachineConfigSpec {
		return fromYAML("a", "infra", "config: {systemd: {units: ["+unit+"]}}").Spec
	}
	Expect(pool.ListChanges(units(before), units(after))).To(Equal(changes))
},
	Entry("one that is added", "", `{name: a.service, dropins: [{name: b.conf, contents: "[Unit]"}]}`, "+ drop-in b.conf of unit a.service"),
	Entry("one that is changed, of a unit with contents", `{name: a.service, contents: "[Unit]", dropins: [{name: b.conf, contents: "[Unit]"}, {name: c.conf}]}`,
		`{name: a.service, contents: "[Unit]", dropins: [{name: b.conf, contents: "[Service]"}, {name: c.conf}]}`, "~ drop-in b.conf of unit a.service"),
	Entry("one that is removed with its unit", `{name: a.service, enabled: false, dropins: [{name: b.conf}]}`, "", "- drop-in b.conf of unit a.service", "- unit a.service"),
	Entry("a unit alone", `{name: a.service, dropins: [{name: b.conf}]}`, `{name: a.service, mask: true, dropins: [{name: b.conf}]}`, "+ unit a.service"),
	Entry("a unit that is only named", "", "{name: a.service}", "+ unit a.service"),
)

// Each entry is one case of the merge of worker's MachineConfig with a custom pool's.
var _ = Describe("Render of worker's MachineConfig and the custom pool's", func() {
	pools := []poolv1.MachineConfigPool{newPool("worker"), newPool("infra")}

	DescribeTable("gives the same result as the reference",
		func(worker, infra, rendered string) { expectRendered(pools, worker, infra, rendered) },
		Entry("concatenates kernel arguments, and keeps duplicates",
			`kernelArguments: [quiet, nosmt]`, `kernelArguments: [quiet, hugepages=4]`, `kernelArguments: [quiet, nosmt, quiet, hugepages=4]`),
		Entry("concatenates extensions, and keeps duplicates",
			`extensions: [usbguard]`, `extensions: [kerberos, usbguard]`, `extensions: [usbguard, kerberos, usbguard]`),
		Entry("enables FIPS when worker does", `fips: true`, `fips: false`, `fips: true`),
		Entry("enables FIPS when the custom pool does", `fips: false`, `fips: true`, `fips: true`),
		Entry("lets the later kernel win", `kernelType: realtime`, `kernelType: 64k-pages`, `kernelType: 64k-pages`),
		Entry("keeps a kernel that the later one does not set", `kernelType: realtime`, `{}`, `kernelType: realtime`),
		Entry("lets the later image win", `osImageURL: os:1`, `osImageURL: os:2`, `osImageURL: os:2`),
		Entry("keeps an image that the later one does not set", `osImageURL: os:1`, `{}`, `osImageURL: os:1`),
		Entry("lets the later image of extensions win", `baseOSExtensionsContainerImage: e:1`, `baseOSExtensionsContainerImage: e:2`, `baseOSExtensionsContainerImage: e:2`),
		Entry("keeps an image of extensions that the later one does not set", `baseOSExtensionsContainerImage: e:1`, `{}`, `baseOSExtensionsContainerImage: e:1`),
		Entry("overwrites files unless they say otherwise",
			`config: {storage: {files: [{path: /a, contents: {source: "data:,1"}}]}}`,
			`config: {storage: {files: [{path: /b, overwrite: false, contents: {source: "data:,2"}}]}}`,
			`config: {storage: {files: [{path: /a, overwrite: true, contents: {source: "data:,1"}}, {path: /b, overwrite: false, contents: {source: "data:,2"}}]}}`),
		Entry("drops the compression of contents that are replaced",
			`config: {storage: {files: [{path: /a, mode: 384, contents: {compression: gzip, source: "data:;base64,H4sIAAAAAAACA6sEABUm2/sBAAAA"}}]}}`,
			`config: {storage: {files: [{path: /a, contents: {source: "data:,2"}}]}}`,
			`config: {storage: {files: [{path: /a, mode: 384, overwrite: true, contents: {source: "data:,2"}}]}}`),
		Entry("adds drop-ins by name, and lets the later of one name win",
			`config: {systemd: {units: [{name: a.service, contents: "[Unit]", dropins: [{name: 1.conf, contents: "[Unit]"}, {name: 2.conf, contents: "[Unit]"}]}]}}`,
			`config: {systemd: {units: [{name: a.service, enabled: true, dropins: [{name: 3.conf, contents: "[Unit]"}, {name: 1.conf, contents: "[Service]"}]}]}}`,
			`config: {systemd: {units: [{name: a.service, contents: "[Unit]", enabled: true, dropins: [
				{name: 1.conf, contents: "[Service]"}, {name: 2.conf, contents: "[Unit]"}, {name: 3.conf, contents: "[Unit]"}]}]}}`),
		Entry("adds SSH keys, each once, and lets the later password win",
			`config: {passwd: {users: [{name: core, passwordHash: a, sshAuthorizedKeys: [k1, k2]}]}}`,
			`config: {passwd: {users: [{name: core, passwordHash: b, sshAuthorizedKeys: [k3, k1]}]}}`,
			`config: {passwd: {users: [{name: core, passwordHash: b, sshAuthorizedKeys: [k1, k2, k3]}]}}`),
	)

	DescribeTable("differs where the reference is wrong",
		func(worker, infra, rendered string) { expectRendered(pools, worker, infra, rendered) },
		Entry("sets the default kernel over another one of worker", `kernelType: realtime`, `kernelType: default`, `kernelType: default`),
		Entry("keeps the compression of contents that are not replaced",
			`config: {storage: {files: [{path: /a, contents: {compression: gzip, source: "data:;base64,H4sIAAAAAAACA6sEABUm2/sBAAAA"}}]}}`,
			`config: {storage: {files: [{path: /a, mode: 384}]}}`,
			`config: {storage: {files: [{path: /a, mode: 384, overwrite: true, contents: {compression: gzip, source: "data:;base64,H4sIAAAAAAACA6sEABUm2/sBAAAA"}}]}}`),
		Entry("drops the hash of contents that are replaced",
			`config: {storage: {files: [{path: /a, contents: {source: "data:,1", verification: {hash: sha256-6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b}}}]}}`,
			`config: {storage: {files: [{path: /a, contents: {source: "data:,2"}}]}}`,
			`config: {storage: {files: [{path: /a, overwrite: true, contents: {source: "data:,2"}}]}}`),
		Entry("does not set overwrite on a file without contents, which Ignition refuses",
			`config: {storage: {files: [{path: /a, mode: 384}]}}`,
			`config: {storage: {files: [{path: /a, append: [{source: "data:,2"}]}]}}`,
			`config: {storage: {files: [{path: /a, mode: 384, append: [{source: "data:,2"}]}]}}`),
		Entry("has other users than core, and their groups",
			`config: {passwd: {users: [{name: admin, uid: 2000, groups: [wheel]}], groups: [{name: ops, gid: 3000}]}}`,
			`config: {passwd: {users: [{name: admin, groups: [ops, wheel]}]}}`,
			`config: {passwd: {users: [{name: admin, uid: 2000, groups: [wheel, ops]}], groups: [{name: ops, gid: 3000}]}}`),
	)

	DescribeTable("refuses",
		func(worker, infra, message string) {
			_, err := pool.Render("infra", pools, []poolv1.MachineConfig{fromYAML("50-w", "worker", worker), fromYAML("50-i", "infra", infra)})
			Expect(err).To(BeAssignableToTypeOf(&pool.RenderError{}))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("kernel-devel with another kernel than the default", `extensions: [usbguard, kernel-devel]`, `kernelType: realtime`,
			`MachineConfig "50-w": spec.extensions[1]: kernel-devel is for kernelType default only, and the pool has kernelType realtime`),
		Entry("an unknown kernel", `kernelType: realtime`, `kernelType: real-time`,
			`MachineConfig "50-i": spec.kernelType: "real-time" is unknown: use default, realtime, 64k-pages, or leave it out`),
		Entry("reserved kernel arguments", `kernelArguments: [quiet]`, `kernelArguments: [nosmt, "quiet systemd.hostname=a"]`,
			`MachineConfig "50-i": spec: kernelArguments[1]: the kernel argument systemd.hostname=a`),
		Entry("reserved kernel arguments in Ignition", `kernelArguments: [quiet]`, `config: {kernelArguments: {shouldExist: [ignition.config.url=https://a]}}`,
			`MachineConfig "50-i": spec.config: kernelArguments.shouldExist[0]`),
	)

	DescribeTable("refuses what is wrong only together, and names the entries of each MachineConfig",
		func(worker, infra, message string) {
			_, err := pool.Render("infra", pools, []poolv1.MachineConfig{fromYAML("50-w", "worker", worker), fromYAML("50-i", "infra", infra)})
			Expect(err).To(BeAssignableToTypeOf(&pool.MergeError{}))
			Expect(err).To(MatchError(HavePrefix(message)))
		},
		Entry("a kubelet flag that is split over two MachineConfigs",
			`config: {storage: {files: [{path: /opt/0}, {path: /opt/a.env, contents: {source: "data:,A=--node-"}}]}}`,
			`config: {storage: {files: [{path: /opt/a.env, append: [{source: "data:,labels=a=b"}]}]}}`,
			`MachineConfig "50-i": spec.config.storage.files[0]: together with spec.config.storage.files[1] of MachineConfig "50-w": /opt/a.env: the kubelet flag --node-labels`),
		Entry("a kubelet flag that one MachineConfig compresses and another decompresses",
			`config: {storage: {files: [{path: /opt/a.env, contents: {source: "data:;base64,H4sIAAAAAAACA3O01dXNy09J1c1JTErNKbZNtE0CAFsAtCwTAAAA"}}]}}`,
			`config: {storage: {files: [{path: /opt/a.env, contents: {compression: gzip}}]}}`,
			`MachineConfig "50-i": spec.config.storage.files[0].contents: together with spec.config.storage.files[0] of MachineConfig "50-w": /opt/a.env: the kubelet flag --node-labels`),
		Entry("a file of one MachineConfig below a link of another",
			`config: {storage: {files: [{path: /opt/0}, {path: /opt/b/c/d}]}}`, `config: {storage: {links: [{path: /opt/b, target: /opt/c}]}}`,
			`MachineConfig "50-w": spec.config.storage.files[1]: together with spec.config.storage.links[0] of MachineConfig "50-i": /opt/b/c/d: file path includes link in config: use the path`),
		Entry("a hard link to a directory",
			`config: {storage: {directories: [{path: /opt/d}]}}`, `config: {storage: {links: [{path: /opt/b, target: /opt/d, hard: true}]}}`,
			`MachineConfig "50-i": spec.config.storage.links[0]: together with spec.config.storage.directories[0] of MachineConfig "50-w": /opt/b: `),
		Entry("a file of one MachineConfig below that of another",
			`config: {storage: {files: [{path: /opt/0}, {path: /opt/x}]}}`, `config: {storage: {files: [{path: /opt/x/y}]}}`,
			`MachineConfig "50-i": spec.config.storage.files[0].path: together with spec.config.storage.files[1] of MachineConfig "50-w": /opt/x/y is below /opt/x, which is a file: remove one`),
		Entry("a directory of one MachineConfig below a unit of another",
			`config: {storage: {directories: [{path: /etc/systemd/system/a.service/x}]}}`, `config: {systemd: {units: [{name: a.service, contents: "[Unit]"}]}}`,
			`MachineConfig "50-w": spec.config.storage.directories[0].path: together with spec.config.systemd.units[0] of MachineConfig "50-i": /etc/systemd/system/a.service/x is below`),
		Entry("a file of one MachineConfig where another has drop-ins",
			`config: {storage: {files: [{path: /etc/systemd/system/a.service.d}]}}`, `config: {systemd: {units: [{name: a.service, dropins: [{name: 1.conf, contents: "[Unit]"}]}]}}`,
			`MachineConfig "50-i": spec.config.systemd.units[0].dropins[0].name: together with spec.config.storage.files[0] of MachineConfig "50-w": /etc/systemd/system/a.service.d/1.conf is below`),
		Entry("a unit and a file at its path",
			`config: {storage: {files: [{path: /etc/systemd/system/a.service, contents: {source: "data:,%5BUnit%5D"}}]}}`,
			`config: {systemd: {units: [{name: a.service, contents: "[Unit]"}]}}`,
			`MachineConfig "50-w": spec.config.storage.files[0].path: together with spec.config.systemd.units[0] of MachineConfig "50-i": /etc/systemd/system/a.service: path conflicts`),
		Entry("a drop-in and a link at its path",
			`config: {systemd: {units: [{name: b.service}, {name: a.service, dropins: [{name: 1.conf}, {name: 2.conf, contents: "[Unit]"}]}]}}`,
			`config: {storage: {links: [{path: /etc/systemd/system/a.service.d/2.conf, target: /dev/null}]}}`,
			`MachineConfig "50-i": spec.config.storage.links[0].path: together with spec.config.systemd.units[1].dropins[1] of MachineConfig "50-w": /etc/systemd/system/a.service.d/2.conf: path conflicts`),
		Entry("a file with the owner's name of one and the ID of the other",
			`config: {storage: {files: [{path: /opt/a, user: {id: 5}}]}}`, `config: {storage: {files: [{path: /opt/a, user: {name: core}}]}}`,
			`MachineConfig "50-i": spec.config.storage.files[0].user: together with spec.config.storage.files[0] of MachineConfig "50-w": /opt/a: `),
		Entry("partitions that overlap",
			`config: {storage: {disks: [{device: /dev/a, partitions: [{number: 1, startMiB: 1, sizeMiB: 100}]}]}}`,
			`config: {storage: {disks: [{device: /dev/a, partitions: [{number: 2, startMiB: 50, sizeMiB: 100}]}]}}`,
			`MachineConfig "50-i": spec.config.storage.disks[0].partitions: together with spec.config.storage.disks[0] of MachineConfig "50-w": /dev/a: `),
	)

	It("names the first conflicts in the message, which a condition has, and has all of them", func() {
		var files []string
		for i := range 30 {
			files = append(files, fmt.Sprintf("{path: /opt/b/%d}", i))
		}
		_, err := pool.Render("infra", pools, []poolv1.MachineConfig{
			fromYAML("50-w", "worker", "config: {storage: {files: ["+strings.Join(files, ", ")+"]}}"), fromYAML("50-i", "infra", `config: {storage: {links: [{path: /opt/b, target: /opt/c}]}}`)})
		Expect(err).To(MatchError(HaveSuffix("; and 20 more")))
		Expect(strings.Count(err.Error(), "50-w")).To(Equal(10))
		failed := &pool.MergeError{}
		Expect(errors.As(err, &failed)).To(BeTrue())
		Expect(failed.Conflicts).To(HaveLen(30))
	})

	It("allows kernel-devel when the later kernel is the default one", func() {
		expectRendered(pools, `{kernelType: realtime, extensions: [kernel-devel]}`, `kernelType: default`, `{kernelType: default, extensions: [kernel-devel]}`)
	})
})

// expectRendered renders one MachineConfig of each pool and expects the given fields.
func expectRendered(pools []poolv1.MachineConfigPool, worker, infra, want string) {
	GinkgoHelper()
	rendered, err := pool.Render("infra", pools, []poolv1.MachineConfig{fromYAML("50-w", "worker", worker), fromYAML("50-i", "infra", infra)})
	Expect(err).NotTo(HaveOccurred())
	whole, err := yaml.Marshal(rendered.Spec)
	Expect(err).NotTo(HaveOccurred())
	var spec, expected map[string]any
	Expect(yaml.Unmarshal(whole, &spec)).To(Succeed())
	Expect(yaml.Unmarshal([]byte(strings.ReplaceAll(want, "config: {", `config: {ignition: {version: "3.5.0"}, `)), &expected)).To(Succeed())
	for field, value := range expected {
		Expect(spec).To(HaveKeyWithValue(field, value))
	}
}
