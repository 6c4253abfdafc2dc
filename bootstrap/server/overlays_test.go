package server_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("A machine's overlay", func() {
	var w *world
	var name string
	BeforeEach(func() {
		w = newWorld()
		name = w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		w.addOverlay("machine-0", name, life)
	})

	It("is served as soon as it is replaced, even before the server is notified", func() {
		s := serve(w, long)
		s.get(configPath, token)
		w.addOverlay("machine-0", name, life)
		w.set(func() {
			overlay := w.overlays["machine-0"]
			overlay.Packed = packed(strings.ReplaceAll(overlayJSON, secretInOverlay, "a-new-credential"))
			w.overlays["machine-0"] = overlay
		})
		_, body := s.get(configPath, token)
		_, overlay := parts(body)
		Expect(string(overlay)).To(And(ContainSubstring("a-new-credential"), Not(ContainSubstring(secretInOverlay))))
	})

	It("is served to its own machine only", func() {
		const other = "9f0c1c1e-5f0a-4c55-8f0e-000000000003"
		w.addRecord(other, "machine-1", boundTo("machine-1", "another token"))
		w.set(func() {
			w.overlays["machine-1"] = server.Overlay{ // of the same version, as is possible for Secrets from two restored backups
				Packed:        packed(strings.ReplaceAll(overlayJSON, secretInOverlay, "of-the-other")),
				Configuration: name, Expires: time.Now().Add(life), Version: w.overlays["machine-0"].Version,
			}
		})
		s := serve(w, long)
		_, first := s.get(configPath, token)
		_, second := s.get("/config/infra/default/machine-1/"+other, "another token")
		Expect(string(first)).To(And(ContainSubstring("Bearer "+token), Not(ContainSubstring("another token"))))
		Expect(string(second)).To(And(ContainSubstring("Bearer another token"), Not(ContainSubstring(token+`"`))))
		_, overlay := parts(second)
		Expect(string(overlay)).To(ContainSubstring("of-the-other"))
	})
})
