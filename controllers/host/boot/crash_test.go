package boot

import (
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// writesOfFirstBoot is the number of writes of the first boot in a cluster: two for the rights of join credentials,
// then the Node, the credential, the assignment, the overlay, and the record.
const writesOfFirstBoot = 7

// writesOfRenewal is the number of writes when a host sends another request and its credential expires soon: two for
// the rights, because the process is new, then a try to create the Node, the credential, the deletion of the old one,
// the assignment, the overlay, and the record.
const writesOfRenewal = 8

var errCrash = errors.New("crash")

// mishaps are what can happen to the n-th write of a preparation.
var mishaps = []struct {
	name   string
	befall func(w *world, n int)
}{
	{"the process stops before write", func(w *world, n int) {
		w.before = func(at int) error {
			if at == n {
				w.stopped = true
				return errStopped
			}
			return nil
		}
	}},
	{"the process stops after write", func(w *world, n int) {
		w.after = func(at int) error {
			if at == n {
				w.stopped = true
				return errStopped
			}
			return nil
		}
	}},
	{"the API server refuses write", func(w *world, n int) {
		w.before = func(at int) error {
			if at == n {
				return errCrash
			}
			return nil
		}
	}},
	{"the response is lost after write", func(w *world, n int) {
		w.after = func(at int) error {
			if at == n {
				return errCrash
			}
			return nil
		}
	}},
}

// expectRetry expects a reconcile to fail, or to be repeated because the cache does not have its write yet.
func expectRetry(result ctrl.Result, err error) {
	GinkgoHelper()
	Expect(err != nil || result.RequeueAfter == status.ConflictRetry).To(BeTrue())
}

var _ = Describe("A preparation that is interrupted", func() {
	for _, mishap := range mishaps {
		for n := 1; n <= writesOfFirstBoot; n++ {
			It(fmt.Sprintf("is completed by the next try when %s %d", mishap.name, n), func(ctx SpecContext) {
				w := newWorldWithAgent()
				mishap.befall(w, n)
				expectRetry(w.sendRequest(ctx))
				if w.stopped {
					w.restart()
				}
				w.before, w.after = nil, nil
				Expect(w.reconcile(ctx)).Error().NotTo(HaveOccurred())
				expectPrepared(ctx, w, machineName)
			})
		}
		for n := 1; n <= writesOfRenewal; n++ {
			It(fmt.Sprintf("leaves one valid credential if, while a credential is replaced, %s %d", mishap.name, n), func(ctx SpecContext) {
				w := newWorldWithAgent()
				Expect(w.sendRequest(ctx)).To(BeZero())
				uid := w.node(ctx).UID
				token := w.credentials(ctx)[0]
				change(ctx, w.workload, &token, func(t *corev1.Secret) {
					t.Data["expiration"] = []byte(time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339))
				})
				w.restart()
				mishap.befall(w, n)
				expectRetry(w.sendRequest(ctx))
				if w.stopped {
					w.restart()
				}
				w.before, w.after = nil, nil
				Expect(w.reconcile(ctx)).Error().NotTo(HaveOccurred())
				expectPrepared(ctx, w, machineName)
				Expect(w.node(ctx).UID).To(Equal(uid))
			})
		}
	}

	It("is tested with an interruption at every write", func(ctx SpecContext) {
		w := newWorldWithAgent()
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.writes).To(Equal(writesOfFirstBoot))
		token := w.credentials(ctx)[0]
		change(ctx, w.workload, &token, func(t *corev1.Secret) { t.Data["expiration"] = []byte("2026-01-01T00:00:00Z") })
		w.restart()
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.writes).To(Equal(writesOfRenewal))
	})
})
