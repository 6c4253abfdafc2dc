package storm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errRefused = errors.New("answered 401: the token was revoked")

// newTestHosts returns one host whose token is revoked after the first boot.
func newTestHosts(ctx context.Context, join func(*kubelet, context.Context) error) (h *hosts, boots *int) {
	boots = new(int)
	h = newHosts(ctx, "ns", 1, func(context.Context, *bmov1alpha1.BareMetalHost, []byte) (*kubelet, error) {
		if *boots++; *boots > 1 {
			return nil, errRefused
		}
		return &kubelet{name: "host"}, nil
	})
	h.join = join
	return h, boots
}

func powerOn(h *hosts) {
	h.provision(&bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "host"}}, []byte("{}"))
}

func TestHostThatJoinedWithoutAnAnswerDoesNotBootAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		tries := map[*kubelet]int{}
		h, boots := newTestHosts(ctx, func(k *kubelet, _ context.Context) error {
			if tries[k]++; tries[k] < 3 {
				return errors.New("the answer was lost")
			}
			return nil
		})
		powerOn(h)
		h.wait()
		if ctx.Err() != nil || h.joinErrors() != nil || *boots != 1 || len(tries) != 1 {
			t.Errorf("booted %d times, with %d kubelets: %v, %v", *boots, len(tries), h.joinErrors(), ctx.Err())
		}
	})
}

func TestStormEndsAsSoonAsAHostGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		boots int // before the test
		says  string
		after time.Duration
	}{
		"whose boot is refused": {1, "host host gives up: answered 401", 0},
		"that never joins":      {0, "host host gives up: its kubelet has not joined within 10m0s: denied", patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, boots := newTestHosts(t.Context(), func(*kubelet, context.Context) error { return errors.New("denied") })
				*boots = test.boots
				ctx, end := h.whileRunning(t.Context())
				defer end()
				began := time.Now()
				powerOn(h)
				<-ctx.Done()
				if cause := context.Cause(ctx); !strings.Contains(cause.Error(), test.says) || time.Since(began) != test.after {
					t.Errorf("after %s, it ends with: %v", time.Since(began), cause)
				}
				if _, err := newMilestone("joined hosts", 1).wait(ctx); err == nil || !strings.Contains(err.Error(), "0 of 1 joined hosts: "+test.says) {
					t.Errorf("the milestone says: %v", err)
				}
				h.wait()
			})
		})
	}
}

func TestMilestoneFailsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMilestone("hosts", 3)
		time.Sleep(2 * patience) // others are first
		began := time.Now()
		go func() {
			for _, name := range []string{"a", "b"} {
				time.Sleep(patience - time.Second)
				m.reach(name, true)
			}
		}()
		_, err := m.wait(t.Context())
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "2 of 3 hosts, and no other one in 10m0s") || took != 3*patience-2*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

func TestFleetThatMakesNoProgressFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := (&Fleet{size: 1}).WaitUntilUpdated(t.Context(), "rendered")
		if err == nil || !strings.Contains(err.Error(), "0 of 1 hosts are updated, and their number has not changed in 10m0s") {
			t.Error(err)
		}
	})
}
