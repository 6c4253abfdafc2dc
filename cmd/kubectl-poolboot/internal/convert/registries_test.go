package convert

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// newMirrorSet returns a mirror set of OpenShift, with its spec in YAML's flow style.
func newMirrorSet(kind, name, spec string) string {
	group := "config.openshift.io/v1"
	if kind == "ImageContentSourcePolicy" {
		group = "operator.openshift.io/v1alpha1"
	}
	return "apiVersion: " + group + "\nkind: " + kind + "\nmetadata:\n  name: " + name + "\nspec: {" + spec + "}\nstatus: {}\n"
}

var _ = Describe("convert, of mirrors and registries", func() {
	const conf, plugin = "/etc/containers/registries.conf.d/01-image-registries.conf", "/etc/containerd/conf.d/01-image-registries.toml"
	converting := func(with string, documents ...string) clitest.Result {
		documents = append([]string{clitest.OpenShiftWorker}, documents...)
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", documents...), "--cluster", "infra-1", "-n", "edge", "--container-runtime", with)
	}
	digests := newMirrorSet("ImageDigestMirrorSet", "d", "imageDigestMirrors: [{source: quay.io, mirrors: [mirror.local:5000, other.local/quay]}, {source: quay.io/team, mirrors: [mirror.local/team-a], mirrorSourcePolicy: NeverContactSource}]")
	tags := newMirrorSet("ImageTagMirrorSet", "t", "imageTagMirrors: [{source: quay.io, mirrors: [mirror.local:5000], mirrorSourcePolicy: AllowContactingSource}]")
	older := newMirrorSet("ImageContentSourcePolicy", "o", `repositoryDigestMirrors: [{source: "example.com:8443/a/b", mirrors: ["10.0.0.1:5000/x"]}, {source: docker.io, mirrors: []}]`)
	image := newMirrorSet("Image", "cluster", `additionalTrustedCA: {name: my-ca}, registrySources: {insecureRegistries: ["mirror.local:5000", "*.lab.local"], blockedRegistries: [evil.local, quay.io/team/bad], containerRuntimeSearchRegistries: [quay.io]}`)

	It("compresses registries.conf if a MachineConfig could not have it as text", func() {
		var entries []string
		for i := range 4200 {
			entries = append(entries, fmt.Sprintf("{source: registry.example.com/vendor-%05d/component, mirrors: [mirror.example.com:8443/vendor-%05[1]d/component, mirror2.example.com:8443/vendor-%05[1]d/component]}", i))
		}
		out := clitest.ExpectSuccess(converting("crio", newMirrorSet("ImageDigestMirrorSet", "d", "imageDigestMirrors: ["+strings.Join(entries, ", ")+"]")))
		Expect(out).To(And(ContainSubstring("path: "+conf), ContainSubstring("compression: gzip")))
		Expect(len(out)).To(BeNumerically("<", 200_000))
	})

	It("combines tens of thousands of mirrors in seconds, of many sources and of one", func() {
		const count = 42_000
		set, long := &input.MirrorSet{}, input.Mirrors{Source: "quay.io"}
		for i := range count {
			name := fmt.Sprintf("example.com/vendor-%05d/component", i)
			set.Spec.ImageDigestMirrors = append(set.Spec.ImageDigestMirrors, input.Mirrors{Source: name, Mirrors: []string{"mirror.local/" + name}})
			long.Mirrors = append(long.Mirrors, "mirror.local/"+name)
		}
		set.Spec.ImageTagMirrors = []input.Mirrors{long}
		start := time.Now()
		registries := readRegistries([]*input.MirrorSet{set}, nil)
		Expect(time.Since(start)).To(BeNumerically("<", 15*time.Second))
		Expect(registries).To(HaveLen(count + 1))
		Expect(registries["quay.io"].mirrors).To(HaveLen(count))
	})

	It("gives the same to the control plane, which inherits nothing", func() {
		files := filesOf(clitest.ExpectSuccess(converting("crio", clitest.OpenShiftMaster, newMirrorSet("ImageTagMirrorSet", "t", "imageTagMirrors: [{source: quay.io, mirrors: [mirror.local]}]"))))
		Expect(files).To(HaveLen(2))
		Expect(files["99-master-registries"]).To(And(HaveKey(conf), Equal(files["99-worker-registries"])))
	})

	It("writes registries.conf for CRI-O, for all pools", func() {
		r := converting("crio", digests, tags, older, image)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal("warning: Image \"cluster\": spec.additionalTrustedCA is left out: write the certificates of the ConfigMap my-ca into " +
			"/etc/containers/certs.d/REGISTRY/ca.crt (CRI-O) or the trust store of the hosts, in a MachineConfig\n"))
		Expect(r.Out).To(ContainSubstring("  labels:\n    machineconfiguration.openshift.io/role: worker\n  name: 99-worker-registries\n"))
		text := filesOf(r.Out)["99-worker-registries"][conf]
		Expect(strings.Split(strings.TrimSpace(strings.NewReplacer("\n\n", "\n", "[[registry]]\n", "[[registry]] ").Replace(text)), "\n")).To(Equal([]string{
			"unqualified-search-registries = ['quay.io']",
			"[[registry]] insecure = true", "prefix = '*.lab.local'",
			"[[registry]] blocked = true", "location = 'evil.local'",
			"[[registry]] location = 'example.com:8443/a/b'", "[[registry.mirror]]", "location = '10.0.0.1:5000/x'", "pull-from-mirror = 'digest-only'",
			"[[registry]] insecure = true", "location = 'mirror.local:5000'",
			"[[registry]] location = 'quay.io'",
			"[[registry.mirror]]", "insecure = true", "location = 'mirror.local:5000'", "pull-from-mirror = 'digest-only'",
			"[[registry.mirror]]", "location = 'other.local/quay'", "pull-from-mirror = 'digest-only'",
			"[[registry.mirror]]", "insecure = true", "location = 'mirror.local:5000'", "pull-from-mirror = 'tag-only'",
			"[[registry]] blocked = true", "location = 'quay.io/team'", "[[registry.mirror]]", "location = 'mirror.local/team-a'", "pull-from-mirror = 'digest-only'",
			"[[registry]] blocked = true", "location = 'quay.io/team/bad'", "[[registry.mirror]]", "location = 'mirror.local/team-a/bad'", "pull-from-mirror = 'digest-only'",
		}))
	})

	It("names the fields of an Image that are not for hosts", func() {
		const why = " is left out: it is for the image streams and the image registry of OpenShift's API\n"
		r := converting("crio", newMirrorSet("Image", "cluster", `allowedRegistriesForImport: [{domainName: a.b}], externalRegistryHostnames: [a.b], imageStreamImportMode: Legacy`))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal(`warning: Image "cluster": spec.allowedRegistriesForImport` + why + `warning: Image "cluster": spec.externalRegistryHostnames` + why +
			`warning: Image "cluster": spec.imageStreamImportMode` + why))

		r = converting("crio", newMirrorSet("Image", "cluster", `allowedRegistriesForImport: [], externalRegistryHostnames: null, imageStreamImportMode: ""`))
		Expect(r.ErrOut).To(BeEmpty())
	})

	It("writes hosts.toml for containerd, and names what that can't express", func() {
		same := newMirrorSet("ImageDigestMirrorSet", "s", "imageDigestMirrors: [{source: ghcr.io/team, mirrors: [mirror.local/ghcr/team]}]")
		r := converting("containerd", digests, tags, older, image, same)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(filesOf(r.Out)).To(Equal(map[string]map[string]string{"99-worker-registries": {
			"/etc/containerd/certs.d/quay.io/hosts.toml": "[host.'https://mirror.local:5000']\ncapabilities = ['pull', 'resolve']\nskip_verify = true\n" +
				"[host.'http://mirror.local:5000']\ncapabilities = ['pull', 'resolve']\n[host.'https://other.local/v2/quay']\ncapabilities = ['pull']\noverride_path = true\n",
			"/etc/containerd/certs.d/mirror.local:5000/hosts.toml": "capabilities = ['pull', 'resolve']\nserver = 'http://mirror.local:5000'\n[host.'https://mirror.local:5000']\ncapabilities = ['pull', 'resolve']\nskip_verify = true\n",
			"/etc/containerd/certs.d/ghcr.io/hosts.toml":           "[host.'https://mirror.local/v2/ghcr']\ncapabilities = ['pull']\noverride_path = true\n",
			plugin: "version = 3\n\n[plugins]\n[plugins.'io.containerd.cri.v1.images']\n[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/etc/containerd/certs.d'\n",
		}}))
		for _, remark := range []string{
			`ImageDigestMirrorSet "d": spec.imageDigestMirrors[1]: containerd can't block a part of a registry: hosts still contact quay.io for quay.io/team`,
			`ImageDigestMirrorSet "d": spec.imageDigestMirrors[1]: containerd has mirrors for whole registries only: mirror.local/team-a is left out as a mirror of quay.io/team`,
			`ImageDigestMirrorSet "s": spec.imageDigestMirrors[0]: containerd has mirrors for whole registries only: hosts also ask mirror.local/ghcr for the other images of ghcr.io by digest`,
			`Image "cluster": spec.registrySources.blockedRegistries[0]: containerd can't block evil.local: refuse its images with a ValidatingAdmissionPolicy`,
			`Image "cluster": spec.registrySources.insecureRegistries[1]: is left out for *.lab.local: containerd has no settings for all subdomains`,
			`Image "cluster": spec.registrySources.containerRuntimeSearchRegistries is left out: containerd searches docker.io only`,
		} {
			Expect(r.ErrOut).To(ContainSubstring("warning: " + remark))
		}
	})

	It("never contacts the source with containerd if all of a registry has mirrors", func() {
		set := newMirrorSet("ImageDigestMirrorSet", "d", "imageDigestMirrors: [{source: quay.io, mirrors: [a.local, b.local], mirrorSourcePolicy: NeverContactSource}]")
		Expect(filesOf(clitest.ExpectSuccess(converting("containerd", set)))["99-worker-registries"]["/etc/containerd/certs.d/quay.io/hosts.toml"]).To(
			Equal("capabilities = ['pull']\nserver = 'https://b.local'\n[host.'https://a.local']\ncapabilities = ['pull']\n"))
	})

	DescribeTable("refuses what OpenShift refuses, and what would inject settings",
		func(kind, spec, why string) {
			clitest.ExpectError(converting("crio", newMirrorSet(kind, "x", spec)), 1, "document 2: line 22: ", kind+` "x": `+why)
		},
		Entry("a source with a new line", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: "quay.io\nblocked = true", mirrors: [a.local]}]`, `spec.imageDigestMirrors[0].source: "quay.io\nblocked = true" is no registry`),
		Entry("a source with a new line at its end", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: "quay.io\n", mirrors: [a.local]}]`, `spec.imageDigestMirrors[0].source: "quay.io\n" is no registry`),
		Entry("a source with a quote", "ImageTagMirrorSet", `imageTagMirrors: [{source: "quay.io'", mirrors: [a.local]}]`, `spec.imageTagMirrors[0].source: "quay.io'" is no registry`),
		Entry("a source that leaves the directory of registries", "ImageTagMirrorSet", `imageTagMirrors: [{source: "..", mirrors: [a.local]}]`, `spec.imageTagMirrors[0].source: ".." is no registry`),
		Entry("a mirror with a scheme", "ImageContentSourcePolicy", `repositoryDigestMirrors: [{source: quay.io, mirrors: ["https://a.local"]}]`, `spec.repositoryDigestMirrors[0].mirrors[0]: "https://a.local" is no registry`),
		Entry("a mirror with a quote", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: quay.io, mirrors: ["a.local\"]"]}]`, `spec.imageDigestMirrors[0].mirrors[0]: "a.local\"]" is no registry`),
		Entry("a mirror of all subdomains", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: quay.io, mirrors: ["*.a.local"]}]`, `spec.imageDigestMirrors[0].mirrors[0]: "*.a.local" is no registry`),
		Entry("an unknown policy", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: quay.io, mirrors: [a.local], mirrorSourcePolicy: Never}]`, `spec.imageDigestMirrors[0].mirrorSourcePolicy: "Never" is unknown`),
		Entry("two policies for one source", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: quay.io, mirrors: [a.local]}, {source: quay.io, mirrors: [b.local], mirrorSourcePolicy: NeverContactSource}]`,
			"spec.imageDigestMirrors[1].mirrorSourcePolicy: it is NeverContactSource for the source quay.io, and AllowContactingSource elsewhere"),
		Entry("a source that is never contacted and a mirror", "ImageDigestMirrorSet", `imageDigestMirrors: [{source: quay.io, mirrors: [a.local, quay.io], mirrorSourcePolicy: NeverContactSource}]`,
			"spec.imageDigestMirrors[0].mirrorSourcePolicy: it is NeverContactSource, and the source quay.io is one of its mirrors"),
		Entry("an insecure registry with a new line", "Image", `registrySources: {insecureRegistries: ["a.local\n[[registry]]"]}`, `spec.registrySources.insecureRegistries[0]: "a.local\n[[registry]]" is no registry`),
		Entry("a blocked image with a quote", "Image", `registrySources: {blockedRegistries: ["a.local/a':b"]}`, `spec.registrySources.blockedRegistries[0]: "a.local/a':b" is no registry`),
		Entry("a blocked image with a new line", "Image", `registrySources: {blockedRegistries: ["a.local/a:b\n"]}`, `spec.registrySources.blockedRegistries[0]: "a.local/a:b\n" is no registry`),
		Entry("a search registry with a quote", "Image", `registrySources: {containerRuntimeSearchRegistries: ["a.local'"]}`, `spec.registrySources.containerRuntimeSearchRegistries[0]: "a.local'" is no registry`),
		Entry("a wrong type", "ImageDigestMirrorSet", `imageDigestMirrors: {}`, "spec.imageDigestMirrors: must be a list"),
	)

	It("blocks one image, as in OpenShift's documentation", func() {
		image := newMirrorSet("Image", "cluster", "registrySources: {blockedRegistries: [untrusted.com, 'reg1.io:5000/myrepo/myapp:latest', reg1.io/a@sha256:"+strings.Repeat("ab", 32)+"]}")
		Expect(filesOf(clitest.ExpectSuccess(converting("crio", image)))["99-worker-registries"][conf]).To(And(
			ContainSubstring("blocked = true\nlocation = 'reg1.io:5000/myrepo/myapp:latest'\n"), ContainSubstring("location = 'reg1.io/a@sha256:abab")))
		r := converting("containerd", image)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(ContainSubstring(`warning: Image "cluster": spec.registrySources.blockedRegistries[1]: containerd can't block`))
	})

	It("leaves out only the refused object with --skip-refused", func() {
		bad := newMirrorSet("ImageDigestMirrorSet", "bad", `imageDigestMirrors: [{source: bad.local, mirrors: [a.local], mirrorSourcePolicy: NeverContactSource}, {source: quay.io, mirrors: ["https://a.local"]}]`)
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, bad, tags, newMirrorSet("Image", "cluster", "registrySources: {blockedRegistries: [evil.local]}"))
		r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--container-runtime", "crio", "--skip-refused")
		Expect(r.Code).To(Equal(cli.ExitIncomplete))
		Expect(r.ErrOut).To(And(ContainSubstring(`ImageDigestMirrorSet "bad": spec.imageDigestMirrors[1].mirrors[0]: "https://a.local"`), HaveSuffix("error: 1 refused and left out: correct what is listed above, and convert again\n")))
		Expect(filesOf(r.Out)["99-worker-registries"][conf]).To(And(ContainSubstring("location = 'mirror.local:5000'"), ContainSubstring("location = 'evil.local'"), Not(ContainSubstring("bad.local"))))
	})

	It("ignores mirrors that are the source itself, and adds the pool worker", func() {
		set := newMirrorSet("ImageDigestMirrorSet", "d", "imageDigestMirrors: [{source: quay.io, mirrors: [quay.io]}]")
		Expect(clitest.ExpectSuccess(converting("crio", set))).NotTo(ContainSubstring("registries"))
		r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", digests), "--cluster", "infra-1", "-n", "edge", "--container-runtime", "crio")
		Expect(r.ErrOut).To(ContainSubstring(`it gets the settings of ImageDigestMirrorSet "d"`))
		Expect(filesOf(r.Out)).To(HaveKey("99-worker-registries"))
	})

	It("keeps the order of mirrors in every set, if this is possible", func() {
		const mirrors = "abcdefgh"
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 0))
			lists := newMirrorLists()
			var given [][]string
			for range 1 + random.IntN(4) {
				var list []string
				for _, name := range mirrors { // parts of one order
					if random.IntN(2) == 0 {
						list = append(list, string(name))
					}
				}
				given = append(given, list)
				lists.add("source", list)
			}
			merged := lists.merge("source")
			for _, list := range given {
				inMerged := slices.DeleteFunc(slices.Clone(merged), func(name string) bool { return !slices.Contains(list, name) })
				Expect(inMerged).To(HaveExactElements(slices.Collect(func(yield func(any) bool) {
					for _, name := range list {
						yield(name)
					}
				})...), fmt.Sprint(seed, given))
			}
			Expect(slices.Compact(slices.Sorted(slices.Values(merged)))).To(HaveLen(len(merged)), "each mirror once")
		}
		loop := newMirrorLists()
		loop.add("s", []string{"a", "b"})
		loop.add("s", []string{"b", "a", "c"})
		Expect(loop.merge("s")).To(ConsistOf("a", "b", "c"))
	})
})
