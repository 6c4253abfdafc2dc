package ignition_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_0"
	"github.com/coreos/ignition/v2/config/v3_1/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("Pointer", func() {
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("first")})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("second")}))
	pointer := ignition.Pointer{
		URL: "https://192.0.2.1:8443/config/infra/5b1e0a5c-0d7a-4c4e-9e9b-3a3b6f1c2d4e", Token: "dG9rZW4", CA: []byte(ca),
	}

	It("is an Ignition config in spec 3.1 with a token and one CA entry for each certificate, and nothing else", func() {
		document, err := pointer.Marshal()
		Expect(err).NotTo(HaveOccurred())
		expectGolden("pointer.ign", document)
	})

	It("is parsed as it was written", func() {
		document, err := pointer.Marshal()
		Expect(err).NotTo(HaveOccurred())
		Expect(ignition.ParsePointer(document)).To(Equal(pointer))
	})

	It("can have no CA", func() {
		document, err := ignition.Pointer{URL: pointer.URL, Token: pointer.Token}.Marshal()
		Expect(err).NotTo(HaveOccurred())
		expectIgnitionReads(document)
		Expect(string(document)).NotTo(ContainSubstring("security"))
	})

	It("has a CA once that is twice in the bundle, because Ignition refuses duplicates", func() {
		twice := pointer
		twice.CA = []byte(ca + ca)
		Expect(twice.Marshal()).To(Equal(must(pointer.Marshal())))
	})

	DescribeTable("refuses a CA bundle that does not consist of certificates",
		func(bundle string) {
			_, err := ignition.Pointer{URL: pointer.URL, Token: pointer.Token, CA: []byte(bundle)}.Marshal()
			Expect(err).To(MatchError(ContainSubstring("certificates in PEM")))
		},
		Entry("no PEM", "none"),
		Entry("text after a certificate", ca+"none"),
		Entry("a key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key")}))),
	)

	DescribeTable("is not parsed from another document",
		func(document, message string) {
			_, err := ignition.ParsePointer([]byte(document))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("nothing", ``, "empty"),
		Entry("no reference", `{"ignition":{"version":"3.1.0"}}`, "ignition.config.merge"),
		Entry("no token", `{"ignition":{"version":"3.1.0","config":{"merge":[{"source":"https://a"}]}}}`, "httpHeaders"),
	)
})

var _ = Describe("Boot", func() {
	pool := []byte(`{"ignition":{"version":"3.5.0"}}`)
	sum := sha512.Sum512(pool)
	boot := ignition.Boot{
		PoolURL:    "https://192.0.2.1:8443/rendered/default/rendered-infra-6db67f47c0b205c26561b1c5ab74d79b",
		PoolSHA512: hex.EncodeToString(sum[:]),
		Token:      "dG9rZW4",
	}
	BeforeEach(func() {
		var err error
		boot.Overlay, err = ignition.PackOverlay(parse(file(`"contents":{"source":"data:,hi"}`)))
		Expect(err).NotTo(HaveOccurred())
	})

	It("merges the pool's configuration first, with its hash and the token, and the machine's overlay last", func() {
		document := boot.Marshal()
		expectIgnitionReads(document)

		config := parse(string(document))
		Expect(config.Ignition.Config.Merge).To(HaveLen(2))
		first, last := config.Ignition.Config.Merge[0], config.Ignition.Config.Merge[1]
		Expect(first.Source).To(HaveValue(Equal(boot.PoolURL)))
		Expect(first.Compression).To(HaveValue(Equal("gzip")))
		Expect(first.Verification.Hash).To(HaveValue(Equal("sha512-" + boot.PoolSHA512)))
		Expect(first.HTTPHeaders).To(HaveLen(1))
		Expect(first.HTTPHeaders[0].Name).To(Equal("Authorization"))
		Expect(first.HTTPHeaders[0].Value).To(HaveValue(Equal("Bearer dG9rZW4")))
		Expect(last.Compression).To(HaveValue(Equal("gzip")))
		Expect(last.Verification.Hash).To(BeNil())
	})

	It("packs an overlay whose files set all fields of their contents, because Ignition would take missing fields from the pool", func() {
		document := boot.Marshal()
		overlay := parse(unpacked(*parse(string(document)).Ignition.Config.Merge[1].Source))
		expectIgnitionReads([]byte(marshal(overlay)))
		sum := sha512.Sum512([]byte("hi"))
		contents := overlay.Storage.Files[0].Contents
		Expect(contents.Compression).To(HaveValue(BeEmpty()))
		Expect(contents.Verification.Hash).To(HaveValue(Equal("sha512-" + hex.EncodeToString(sum[:]))))
	})

	It("leaves the token on a host that reports with it, for root only", func() {
		Expect(parse(string(boot.Marshal())).Storage.Files).To(BeEmpty())
		reporting := boot
		reporting.Token, reporting.ReportsJoin = "a token", true
		document := reporting.Marshal()
		expectIgnitionReads(document)
		Expect(canonical(document)).To(Equal(string(document)))
		files := parse(string(document)).Storage.Files
		Expect(files).To(HaveLen(1))
		Expect(files[0].Path).To(Equal("/etc/poolboot/report.header"))
		Expect(files[0].Mode).To(HaveValue(Equal(0o600)))
		content, err := dataurl.DecodeString(*files[0].Contents.Source)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(content.Data)).To(Equal("Authorization: Bearer a token\n"))
	})

	It("is written in canonical form, whatever its fields contain", func() {
		odd := boot
		odd.Token, odd.PoolURL = `a"b\c`, "https://192.0.2.1/?a=<b>&c=é"
		for _, b := range []ignition.Boot{boot, odd} {
			var config types.Config
			Expect(json.Unmarshal(b.Marshal(), &config)).To(Succeed())
			Expect(config.Ignition.Config.Merge[0].Source).To(HaveValue(Equal(b.PoolURL)))
			Expect(config.Ignition.Config.Merge[0].HTTPHeaders[0].Value).To(HaveValue(Equal("Bearer " + b.Token)))
			Expect(canonical(b.Marshal())).To(Equal(string(b.Marshal())))
		}
	})

	It("contains both parts for a host with spec 3.0, whose references can't have a token", func() {
		overlay, err := boot.Overlay.ForVersion("3.0.0")
		Expect(err).NotTo(HaveOccurred())
		old := ignition.Boot{Version: "3.0.0", PoolURL: ignition.DataURL(pool), PoolSHA512: boot.PoolSHA512, Token: boot.Token, Overlay: overlay}
		document := old.Marshal()
		Expect(canonical(document)).To(Equal(string(document)))
		config, report, err := v3_0.Parse(document)
		Expect(err).NotTo(HaveOccurred(), report.String())
		Expect(report.Entries).To(BeEmpty())
		Expect(document).NotTo(Or(ContainSubstring(boot.Token), ContainSubstring("httpHeaders"), ContainSubstring("compression")))
		merge := config.Ignition.Config.Merge
		Expect(merge).To(HaveLen(2))
		Expect(dataurl.DecodeString(*merge[0].Source)).To(HaveField("Data", pool))
		Expect(merge[0].Verification.Hash).To(HaveValue(Equal("sha512-" + boot.PoolSHA512)))
		last, err := dataurl.DecodeString(*merge[1].Source)
		Expect(err).NotTo(HaveOccurred())
		own, report, err := v3_0.Parse(last.Data)
		Expect(err).NotTo(HaveOccurred(), report.String())
		Expect(own.Storage.Files).To(HaveLen(1))
	})

	It("takes one allocation", func() {
		Expect(testing.AllocsPerRun(100, func() { boot.Marshal() })).To(BeNumerically("<=", 1))
	})

	It("refuses an overlay with a malformed file", func() {
		_, err := ignition.PackOverlay(parse(file(`"contents":{"source":"data:,hi","compression":"gzip"}`)))
		Expect(err).To(MatchError(And(ContainSubstring("overlay"), ContainSubstring("not a gzip file"))))
	})

	DescribeTable("packs an overlay in the oldest version that supports it, for all hosts that read this or a newer version",
		func(more, oldest string, newer ...string) {
			packed, err := ignition.PackOverlay(parse(`{"ignition":{"version":"3.5.0"}` + more + `}`))
			Expect(err).NotTo(HaveOccurred())
			Expect(packed.Unpack()).To(ContainSubstring(oldest))
			for _, version := range newer {
				Expect(packed.ForVersion(version)).To(Equal(packed))
			}
			for _, version := range ignition.VersionsWritten[:len(ignition.VersionsWritten)-len(newer)] {
				_, err := packed.ForVersion(version)
				if version == "3.0.0" && len(newer) == 5 {
					Expect(err).NotTo(HaveOccurred())
				} else {
					Expect(err).To(BeAssignableToTypeOf(&ignition.VersionError{}))
				}
			}
		},
		Entry("an entry that every version supports", `,"storage":{"files":[{"path":"/a"}]}`, "3.1.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"),
		Entry("LUKS", `,"storage":{"luks":[{"name":"a","device":"/dev/a"}]}`, "3.2.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"),
		Entry("kernel arguments", `,"kernelArguments":{"shouldExist":["a"]}`, "3.3.0", "3.3.0", "3.4.0", "3.5.0"),
	)

	DescribeTable("refuses an overlay that was not packed, and does not quote it", func(damaged string) {
		for _, version := range []string{"3.0.0", "3.5.0"} {
			_, err := ignition.PackedOverlay(damaged).ForVersion(version)
			Expect(err).To(MatchError(Not(ContainSubstring("secret"))))
		}
	},
		Entry("nothing", ""),
		Entry("Ignition that is not packed", `{"ignition":{"version":"secret"}}`),
		Entry("another data URL", "data:,secret"),
		Entry("an invalid version", "data:application/gzip;spec=secret;base64,"),
	)

	DescribeTable("does not quote an overlay that it can't unpack", func(damaged string) {
		_, err := ignition.PackedOverlay(damaged).ForVersion("3.0.0")
		Expect(err).To(MatchError(Not(ContainSubstring("secret"))))
	},
		Entry("invalid base64", "data:application/gzip;spec=3.1.0;base64,secret !"),
		Entry("a malformed gzip file", "data:application/gzip;spec=3.1.0;base64,c2VjcmV0"),
	)

	It("does not change the overlay that it packs, and unpacks the same overlay", func() {
		overlay := parse(file(`"contents":{"source":"data:,hi"}`))
		before := marshal(overlay)
		packed, err := ignition.PackOverlay(overlay)
		Expect(err).NotTo(HaveOccurred())
		Expect(marshal(overlay)).To(Equal(before))
		Expect(packed.Unpack()).To(BeEquivalentTo(unpacked(string(packed))))
	})
})

// canonical returns a document as encoding/json writes it, with sorted keys.
func canonical(document []byte) string {
	GinkgoHelper()
	var content any
	Expect(json.Unmarshal(document, &content)).To(Succeed())
	return string(must(json.Marshal(content)))
}

// unpacked returns the content of a gzip file in a data URL.
func unpacked(source string) string {
	GinkgoHelper()
	decoded, err := dataurl.DecodeString(source)
	Expect(err).NotTo(HaveOccurred())
	reader, err := gzip.NewReader(bytes.NewReader(decoded.Data))
	Expect(err).NotTo(HaveOccurred())
	data, err := io.ReadAll(reader)
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(data))
}

func must(document []byte, err error) []byte {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return document
}
