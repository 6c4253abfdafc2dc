package service

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// serverRate is how many bytes per second the server of the files sends.
const serverRate = 50 << 20

var _ = Describe("An update with large files", func() {
	// run updates a host, and returns how long it had a slot and how long its Node was cordoned.
	run := func(isStaged bool) (slot, cordoned time.Duration) {
		megabytes, err := strconv.Atoi(cmp.Or(os.Getenv("POOLBOOT_STAGED_MEGABYTES"), "20"))
		Expect(err).NotTo(HaveOccurred())
		const files = 10
		contents := bytes.Repeat([]byte{1}, megabytes<<20/files)
		sum := sha256.Sum256(contents)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Duration(len(contents)) * time.Second / serverRate)
			_, _ = w.Write(contents)
		}))
		DeferCleanup(server.Close)
		w := newWorld()
		w.install("rendered-a", "a")
		w.join(time.Now().Add(time.Hour))
		first := w.offer("rendered-a", "a")
		start(w.service())
		state := func() string {
			return w.annotation(agentv1.StateAnnotation) + " " + w.annotation(agentv1.TargetAnnotation)
		}
		Eventually(state, "10s").Should(Equal("Done " + first))

		w.isNext = isStaged
		second := w.offer("rendered-b", "b", func(a *assignment.Assignment) {
			a.Policy.Paths["/opt"] = update.Rule{Actions: []update.Action{{Type: update.Drain}}}
			var document map[string]any
			Expect(json.Unmarshal(w.rendered["rendered-b"], &document)).To(Succeed())
			storage := document["storage"].(map[string]any)
			for i := range files {
				storage["files"] = append(storage["files"].([]any), map[string]any{"path": fmt.Sprint("/opt/", i), "mode": 420, "contents": map[string]any{
					"source": server.URL, "verification": map[string]any{"hash": "sha256-" + hex.EncodeToString(sum[:])}}})
			}
			w.rendered["rendered-b"], err = json.Marshal(document)
			Expect(err).NotTo(HaveOccurred())
			a.Config.SHA512 = hashOf(w.rendered["rendered-b"])
		})
		if isStaged {
			Eventually(w.annotation, "2m").WithArguments(agentv1.StagingAnnotation).Should(Equal(second))
			server.Close()
			w.annotate(map[string]*string{agentv1.DesiredAnnotation: &second})
		}
		told := time.Now()
		Eventually(state, "2m", "10ms").Should(Equal("Draining " + second))
		cordon := time.Now()
		w.annotate(map[string]*string{agentv1.DrainedAnnotation: &second})
		Eventually(state, "2m", "10ms").Should(Equal("Done " + second))
		Expect(w.read("/opt/0")).To(HaveLen(len(contents)))
		return time.Since(told), time.Since(cordon)
	}

	It("needs no server while it has a slot if it was staged, and none while its Node is cordoned in any case", func() {
		for _, isStaged := range []bool{false, true} {
			slot, cordoned := run(isStaged)
			GinkgoWriter.Printf("staged: %t, slot: %.1fs, cordoned: %.1fs\n", isStaged, slot.Seconds(), cordoned.Seconds())
		}
	})
})
