package server

import (
	"context"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

// busyRecorder ends no write before it is let go.
type busyRecorder struct {
	letGo chan struct{}

	mu        sync.Mutex
	now, most int
}

func (b *busyRecorder) Requested(ctx context.Context, _ Record, _ time.Time) error {
	b.mu.Lock()
	b.now++
	b.most = max(b.most, b.now)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.now--
		b.mu.Unlock()
	}()
	select {
	case <-b.letGo:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *busyRecorder) Served(context.Context, Record, time.Time) error { return nil }

func (b *busyRecorder) writing() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// countingRecorder notes how often it wrote, and when last.
type countingRecorder struct {
	writes int
	last   time.Time
}

func (c *countingRecorder) Requested(_ context.Context, _ Record, at time.Time) error {
	c.writes++
	c.last = at
	return nil
}

func (c *countingRecorder) Served(context.Context, Record, time.Time) error { return nil }

var _ = Describe("Recording what many hosts ask at once", func() {
	It("has a few writes under way, and the others wait for their turn", func(ctx SpecContext) {
		busy := &busyRecorder{letGo: make(chan struct{})}
		r := newRecording(busy, nil, time.Now)
		var hosts sync.WaitGroup
		for i := range 3 * maxWriting {
			hosts.Go(func() {
				defer GinkgoRecover()
				Expect(r.request(ctx, Record{UID: types.UID(strconv.Itoa(i))})).To(Succeed())
			})
		}
		Eventually(busy.writing).Should(Equal(maxWriting))
		close(busy.letGo)
		hosts.Wait()
		Expect(busy.most).To(Equal(maxWriting))
	})

	DescribeTable("makes one write of fifty requests of a host within a minute", func(seen bool, writes int) {
		to, clock := &countingRecorder{}, time.Now()
		r := newRecording(to, nil, func() time.Time { return clock })
		var host Record
		for range 50 {
			Expect(r.request(context.Background(), host)).To(Succeed())
			if seen {
				host.RequestedTime = to.last
			}
			clock = clock.Add(time.Second)
		}
		Expect(to.writes).To(Equal(writes))
	},
		Entry("when the record shows it", true, 1),
		Entry("and one every five seconds as long as the record does not show it", false, 10),
	)

	It("gives up a turn that does not come in time, and takes another when the host asks again", func(ctx SpecContext) {
		busy := &busyRecorder{letGo: make(chan struct{})}
		r := newRecording(busy, nil, time.Now)
		for range maxWriting {
			r.writing <- struct{}{}
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		Expect(r.request(short, Record{UID: "late"})).To(MatchError(context.DeadlineExceeded))
		<-r.writing
		close(busy.letGo)
		Expect(r.request(ctx, Record{UID: "late"})).To(Succeed())
		Expect(busy.most).To(Equal(1))
	})
})
