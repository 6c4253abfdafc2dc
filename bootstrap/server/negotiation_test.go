package server_test

import (
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// accepting returns the Accept header of an Ignition whose newest spec version is version.
func accepting(version string) string {
	return "application/vnd.coreos.ignition+json;version=" + version + ", */*;q=0.1"
}

var _ = Describe("A host's Ignition", func() {
	var w *world
	var s *site
	BeforeEach(func() {
		w = newWorld()
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		w.addOverlay("machine-0", w.addRenderedOf("infra", "infra", nil), life)
		s = serve(w, short)
	})
	send := func(target string, accept ...string) (reply, []byte) {
		GinkgoHelper()
		return s.sendWith(http.MethodGet, target, token, http.Header{"Accept": accept})
	}

	DescribeTable("gets the newest version that it and the server support", func(version string, accept ...string) {
		response, body := send(configPath, accept...)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(response.Header.Get("Vary")).To(Equal("Accept"))
		entry, overlay := parts(body)
		Expect(string(overlay)).To(HavePrefix(`{"ignition":{"version":"3.1.0"}`), "every version after it reads this one")

		By("with bytes that match the hash in the answer")
		response, packed := send(*entry.Source, accept...)
		Expect(response.Header.Get("Vary")).To(Equal("Accept"))
		plain := unpack(packed)
		Expect(string(plain)).To(HavePrefix(`{"ignition":{"version":"` + version + `"}`))
		Expect(entry.Verification.Hash).To(HaveValue(Equal(hashFor(plain))))
		Expect(response.Header.Get("ETag")).To(ContainSubstring(strings.TrimPrefix(*entry.Verification.Hash, "sha512-")))
	},
		Entry("no Accept header: the newest", "3.5.0"),
		Entry("all types, as curl sends", "3.5.0", "*/*"),
		Entry("Ignition without a version", "3.5.0", "application/vnd.coreos.ignition+json"),
		Entry("3.1", "3.1.0", accepting("3.1.0")),
		Entry("3.2", "3.2.0", accepting("3.2.0")),
		Entry("3.3", "3.3.0", accepting("3.3.0")),
		Entry("3.4", "3.4.0", accepting("3.4.0")),
		Entry("3.5", "3.5.0", accepting("3.5.0")),
		Entry("what Ignition 2.27 sends", "3.5.0", "application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1"),
		Entry("a patch version", "3.3.0", accepting("3.3.7")),
		Entry("an experimental version", "3.5.0", accepting("3.7.0-experimental")),
		Entry("several versions", "3.4.0", "application/vnd.coreos.ignition+json;version=2.4.0, application/vnd.coreos.ignition+json; version=\"3.4.0\"; q=0.5"),
		Entry("several headers", "3.4.0", accepting("3.2.0"), accepting("3.4.0")),
		Entry("a version with weight 0", "3.2.0", "application/vnd.coreos.ignition+json;version=3.4.0;q=0, "+accepting("3.2.0")),
		Entry("a browser", "3.5.0", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"),
	)

	It("that reads only 3.0, where a reference can't have a token, gets everything in one answer", func() {
		response, body := send(configPath, accepting("3.0.0"))
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		merge := parse(body).Ignition.Config.Merge
		Expect(merge).To(HaveLen(2))
		inline, err := dataurl.DecodeString(*merge[0].Source)
		Expect(err).NotTo(HaveOccurred())
		Expect(merge[0].Verification.Hash).To(HaveValue(Equal(hashFor(inline.Data))))
		_, packed := send(renderedPath(w), accepting("3.0.0"))
		Expect(unpack(packed)).To(Equal(inline.Data))
		Expect(string(body)).NotTo(ContainSubstring(token))
	})

	DescribeTable("that reads none of the written versions gets 406 with the images that do, and causes no write", func(reads, accept string) {
		w.set(func() { clear(w.overlays) })
		response, body := send(configPath, accept)
		Expect(response.StatusCode).To(Equal(http.StatusNotAcceptable), string(body))
		word, message := problem(body)
		Expect(word).To(Equal("NotAcceptable"))
		Expect(message).To(And(HavePrefix("this host "+reads+", and this server writes spec 3.0.0 to 3.5.0: boot an image with Ignition 2.0.0 or newer"),
			ContainSubstring("RHEL CoreOS 4.6"), ContainSubstring("Flatcar 3185"), Not(ContainSubstring("banana"))))
		Expect(w.requests()).To(BeZero())
	},
		Entry("what Ignition 0.35 sends", "reads Ignition spec 2.4.0 and 1", "application/vnd.coreos.ignition+json;version=2.4.0, application/vnd.coreos.ignition+json;version=1;q=0.5, */*;q=0.1"),
		Entry("what hosts of OpenShift before 4.6 send", "reads Ignition spec 2.2.0", "application/vnd.coreos.ignition+json;version=2.2.0"),
		Entry("a future version", "reads Ignition spec 4.0.0", accepting("4.0.0")),
		Entry("no version", "names no version of Ignition's spec in its Accept header", accepting("banana")),
		Entry("a version with too many digits", "names no version of Ignition's spec in its Accept header", accepting("3.99999999999999999999")),
		Entry("more versions than a message repeats", "reads Ignition spec 2.0.0, 2.1.0, 2.2.0 and 2.3.0",
			strings.ReplaceAll("2.0.0 2.0.0 2.1.0 2.2.0 2.3.0 2.4.0 2.5.0", " ", ",application/vnd.coreos.ignition+json;version=")[len("2.0.0,"):]),
		Entry("another type", "names no version of Ignition's spec in its Accept header", "text/html"),
		Entry("nothing", "names no version of Ignition's spec in its Accept header", ""),
		Entry("noise", "names no version of Ignition's spec in its Accept header", ";;,=,q=;version"),
	)

	It("that is too old for its pool's configuration gets 503 with the entry, and boots once the entry is removed", func() {
		w.addOverlay("machine-0", w.addRendered("infra", "infra"), life) // has kernel arguments
		reads := w.renderedReads()
		for range 3 {
			response, body := send(configPath, accepting("3.2.0"))
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), "its MachineConfigs may still change")
			word, message := problem(body)
			Expect(word).To(Equal("IgnitionTooOld"))
			Expect(message).To(And(ContainSubstring("rendered MachineConfig default/rendered-infra-"),
				ContainSubstring("kernelArguments.shouldExist: spec version 3.2.0"), HaveSuffix("boot an image with Ignition 2.20.0 or newer, which reads 3.5.0")))
		}
		Expect(w.renderedReads()-reads).To(Equal(1), "that it can't be said is found out once")
		Expect(figure(s, "poolboot_config_server_ignition_too_old_total", map[string]string{"version": "3.2.0"})).To(BeEquivalentTo(3))
		Expect(s.logged()).To(ContainSubstring("kernelArguments.shouldExist"))

		By("while hosts with a newer Ignition boot")
		response, _ := send(configPath, accepting("3.3.0"))
		Expect(response.StatusCode).To(Equal(http.StatusOK))

		w.addOverlay("machine-0", w.addRenderedOf("infra", "infra", nil), life)
		response, _ = send(configPath, accepting("3.2.0"))
		Expect(response.StatusCode).To(Equal(http.StatusOK))
	})

	It("that is too old for its machine's overlay gets 503 with the entry, and no other content of the overlay", func() {
		w.set(func() {
			overlay := w.overlays["machine-0"]
			overlay.Packed = packed(strings.Replace(overlayJSON, `"storage":{`, `"storage":{"luks":[{"name":"a","device":"/dev/a"}],`, 1))
			overlay.Version += "-changed"
			w.overlays["machine-0"] = overlay
		})
		response, body := send(configPath, accepting("3.1.0"))
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		_, message := problem(body)
		Expect(message).To(And(ContainSubstring("overlay of PoolbootConfig default/machine-0"), ContainSubstring("storage.luks")))
		Expect(string(body) + s.logged()).NotTo(ContainSubstring(secretInOverlay))
	})

	It("gets its pool's configuration from memory in each older version, until the object changes", func() {
		path, older := renderedPath(w), ignition.VersionsWritten[:len(ignition.VersionsWritten)-1]
		for range 2 {
			for _, version := range older {
				response, _ := send(path, accepting(version))
				Expect(response.StatusCode).To(Equal(http.StatusOK))
			}
		}
		Expect(w.renderedReads()).To(Equal(len(older)))
		s.handler.RenderedChanged(types.NamespacedName{Namespace: "default", Name: w.overlays["machine-0"].Configuration})
		Expect(cachedBytes(s)).To(BeZero())
	})
})
