package rpmostree_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
)

func TestRPMOSTree(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "rpm-ostree")
}

// runner is a Runner that is a function.
type runner func(ctx context.Context, name string, arguments ...string) ([]byte, error)

func (r runner) Run(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	return r(ctx, name, arguments...)
}

var errBusy = errors.New("rpm-ostree kargs: exit status 1: error: Transaction in progress: upgrade (check)\n You can cancel the current transaction with `rpm-ostree cancel`")

var _ = Describe("rpm-ostree", func() {
	It("is tried again while its daemon does something else", func() {
		calls := 0
		client := rpmostree.Client{Interval: time.Millisecond, Runner: runner(func(_ context.Context, name string, arguments ...string) ([]byte, error) {
			Expect(append([]string{name}, arguments...)).To(Equal([]string{"rpm-ostree", "kargs", "--append=a"}))
			if calls++; calls < 3 {
				return nil, errBusy
			}
			return []byte("done"), nil
		})}
		Expect(client.Run(context.Background(), "kargs", "--append=a")).To(BeEquivalentTo("done"))
		Expect(calls).To(Equal(3))
	})

	It("is not tried again after another error", func() {
		calls, failure := 0, errors.New("error: No space left on device")
		client := rpmostree.Client{Runner: runner(func(context.Context, string, ...string) ([]byte, error) {
			calls++
			return nil, failure
		})}
		_, err := client.Run(context.Background(), "kargs")
		Expect(err).To(MatchError(failure))
		Expect(calls).To(Equal(1))
	})

	It("is an error with the reason and the cure when the context ends", func() {
		ctx, cancel := context.WithCancel(context.Background())
		client := rpmostree.Client{Runner: runner(func(context.Context, string, ...string) ([]byte, error) {
			cancel()
			return nil, errBusy
		})}
		_, err := client.Run(ctx, "kargs")
		Expect(err).To(MatchError(errBusy))
		Expect(err).To(MatchError(context.Canceled))
		Expect(err).To(MatchError(ContainSubstring("end it with rpm-ostree cancel")))
	})
})
