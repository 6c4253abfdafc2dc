package server

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// busyRecorder blocks writes until release is closed.
type busyRecorder struct {
	release chan struct{}

	mu        sync.Mutex
	now, most int
}

func (b *busyRecorder) RecordRequest(ctx context.Context, _ Record, _ netip.Addr, _ time.Time) error {
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
	case <-b.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *busyRecorder) RecordAddress(context.Context, Record, netip.Addr, time.Time) error {
	return nil
}

func (b *busyRecorder) RecordServed(context.Context, Record, time.Time) error { return nil }

func (b *busyRecorder) RecordFailure(context.Context, Record, IgnitionFailure, time.Time) error {
	return nil
}

func (b *busyRecorder) writing() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// countingRecorder counts its writes, and keeps the time of the last one and the addresses.
type countingRecorder struct {
	writes int
	last   time.Time
	from   []netip.Addr
}

func (c *countingRecorder) RecordRequest(_ context.Context, _ Record, from netip.Addr, at time.Time) error {
	c.writes++
	c.last = at
	if from.IsValid() {
		c.from = append(c.from, from)
	}
	return nil
}

func (c *countingRecorder) RecordAddress(_ context.Context, _ Record, from netip.Addr, _ time.Time) error {
	c.writes++
	c.from = append(c.from, from)
	return nil
}

func (c *countingRecorder) RecordServed(context.Context, Record, time.Time) error { return nil }

func (c *countingRecorder) RecordFailure(context.Context, Record, IgnitionFailure, time.Time) error {
	return nil
}

var _ = Describe("Recording requests", func() {
	It("limits concurrent writes, and the others wait", func(ctx SpecContext) {
		busy := &busyRecorder{release: make(chan struct{})}
		r := newRecording(busy, nil, time.Now)
		var hosts sync.WaitGroup
		for i := range 3 * maxConcurrentWrites {
			hosts.Go(func() {
				defer GinkgoRecover()
				Expect(r.recordRequest(ctx, Record{UID: types.UID(strconv.Itoa(i))}, netip.Addr{})).To(Succeed())
			})
		}
		Eventually(busy.writing).Should(Equal(maxConcurrentWrites))
		close(busy.release)
		hosts.Wait()
		Expect(busy.most).To(Equal(maxConcurrentWrites))
	})

	DescribeTable("causes one write for fifty requests of a host within a minute", func(seen bool, writes int) {
		to, clock := &countingRecorder{}, time.Now()
		r := newRecording(to, nil, func() time.Time { return clock })
		var host Record
		from := netip.MustParseAddr("192.0.2.7")
		for range 50 {
			Expect(r.recordRequest(context.Background(), host, from)).To(Succeed())
			if r.claimAddress(&host, from) {
				Expect(r.writeAddress(context.Background(), host, from)).To(Succeed())
			}
			if seen {
				host.RequestedTime, host.Addresses = to.last, to.from
			}
			clock = clock.Add(time.Second)
		}
		Expect(to.writes).To(Equal(writes))
	},
		Entry("if the record shows it", true, 1),
		Entry("and one every five seconds while the record does not show it", false, 10),
	)

	DescribeTable("distinguishes the first request for a configuration from its retries", func(first bool, requested, answered int, more ...func(*Record)) {
		at := func(minute int) (t time.Time) {
			if minute > 0 {
				t = time.Date(2026, 5, 4, 8, minute, 0, 0, time.UTC)
			}
			return t
		}
		host := Record{RequestedTime: at(requested), AnsweredTime: at(answered)}
		for _, change := range more {
			change(&host)
		}
		Expect(host.IsFirstRequest()).To(Equal(first))
	},
		Entry("of a host that has sent no request", true, 0, 0),
		Entry("of a host that waits for its configuration", false, 1, 0),
		Entry("of a host that has its configuration and requests another one, as after a reboot", true, 1, 1),
		Entry("of a host that requests another one for the second time", false, 3, 2),
		Entry("of a host with a new token", true, 1, 0, func(r *Record) { r.OldAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.7")} }),
		Entry("of a host that has already used its new token", false, 1, 0, func(r *Record) {
			r.OldAddresses, r.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.8")}, []netip.Addr{netip.MustParseAddr("192.0.2.7")}
		}),
	)

	DescribeTable("causes eight writes for the addresses of a token, however many there are", func(seen bool) {
		to, clock := &countingRecorder{}, time.Now()
		r := newRecording(to, nil, func() time.Time { return clock })
		host := Record{UID: "stolen", Token: record.Token{Hash: "a"}}
		from := netip.MustParseAddr("2001:db8::")
		for range 100 {
			if from = from.Next(); r.claimAddress(&host, from) {
				Expect(r.writeAddress(context.Background(), host, from)).To(Succeed())
			}
			if seen {
				host.Addresses = to.from
			}
			clock = clock.Add(time.Millisecond)
		}
		Expect(to.from).To(HaveLen(MaxAddresses))
	},
		Entry("if the record shows them", true),
		Entry("and if the record does not show them yet", false),
	)

	It("records an address again if the record has lost it, and immediately for another token", func() {
		clock := time.Now()
		r := newRecording(&countingRecorder{}, nil, func() time.Time { return clock })
		host, from := Record{UID: "moved", Token: record.Token{Hash: "a"}}, netip.MustParseAddr("192.0.2.7")
		Expect(r.claimAddress(&host, from)).To(BeTrue())
		Expect(r.claimAddress(&host, from)).To(BeFalse())
		host.Token.Hash = "b"
		Expect(r.claimAddress(&host, from)).To(BeTrue())
		clock = clock.Add(requestInterval)
		Expect(r.claimAddress(&host, from)).To(BeTrue())
	})

	DescribeTable("writes an address in one form", func(remote, address string) {
		Expect(addressOf(&http.Request{RemoteAddr: remote}).String()).To(Equal(address))
	},
		Entry("IPv4", "192.0.2.7:1234", "192.0.2.7"),
		Entry("IPv4 on an IPv6 socket", "[::ffff:192.0.2.7]:1234", "192.0.2.7"),
		Entry("IPv6", "[2001:DB8:0::7]:1234", "2001:db8::7"),
		Entry("IPv6 with a zone, which is local to this machine", "[fe80::7%eth0]:1234", "fe80::7"),
	)

	It("gives up a write that can't start in time, and writes when the host retries", func(ctx SpecContext) {
		busy := &busyRecorder{release: make(chan struct{})}
		r := newRecording(busy, nil, time.Now)
		for range maxConcurrentWrites {
			r.writeSlots <- struct{}{}
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		Expect(r.recordRequest(short, Record{UID: "late"}, netip.Addr{})).To(MatchError(context.DeadlineExceeded))
		<-r.writeSlots
		close(busy.release)
		Expect(r.recordRequest(ctx, Record{UID: "late"}, netip.Addr{})).To(Succeed())
		Expect(busy.most).To(Equal(1))
	})
})

func (b *busyRecorder) RecordRegistrationRequest(context.Context, Record, time.Time) error {
	return nil
}

func (c *countingRecorder) RecordRegistrationRequest(context.Context, Record, time.Time) error {
	return nil
}
