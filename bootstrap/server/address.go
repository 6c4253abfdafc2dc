package server

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// MaxAddresses is how many addresses are noted of a token. Who has stolen it causes no more writes with it by that.
const MaxAddresses = 8

// What became of a live token from another address than its host's.
const (
	addressAllowed = "allowed"
	addressRefused = "refused"
)

// addressOf returns the address that a request comes from. What a proxy says of it does not count: anybody can say
// that.
func addressOf(r *http.Request) netip.Addr {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from.Addr().Unmap().WithZone("")
}

// checkAddress refuses a live token that is bound to other addresses, and has it noted where it came from. The host is
// told to try again: what its BareMetalHost is known to have may still be completed.
func (s *Server) checkAddress(ctx context.Context, record *Record, from netip.Addr) error {
	if !record.Bound || slices.Contains(record.HostAddresses, from) {
		if len(record.Addresses) > 0 && record.Addresses[0] != from {
			s.opts.Metrics.elsewhere.WithLabelValues(addressAllowed).Inc()
		}
		return nil
	}
	s.came(ctx, record, from)
	s.opts.Metrics.elsewhere.WithLabelValues(addressRefused).Inc()
	if len(record.HostAddresses) == 0 {
		return notReady("the token is bound to the addresses of its BareMetalHost, of which none is known yet. Try again")
	}
	return &refusal{code: http.StatusServiceUnavailable, Word: "AddressNotBound", Message: fmt.Sprintf(
		"the token is bound to the addresses of its BareMetalHost, and %s is not known to be one: see the events of PoolbootConfig %s", from, record.NamespacedName)}
}

// came notes in the background that a live token came from an address, unless that is noted.
func (s *Server) came(ctx context.Context, record *Record, from netip.Addr) {
	if !s.recording.claimAddress(record, from) {
		return
	}
	noted := *record
	s.writes.Go(func() {
		if err := s.recording.come(context.WithoutCancel(ctx), noted, from); err != nil {
			s.opts.Metrics.recordErrors.Inc()
			s.opts.Log.Error(err, "Could not record where a token came from", "PoolbootConfig", noted.NamespacedName, "address", from)
		}
	})
}

// arrival is a token that came from an address, of which the note is under way, or so fresh that the record may not
// show it.
type arrival struct {
	from  netip.Addr
	token string // its hash
	at    time.Time
}

// claimAddress says whether it is to be noted now that a record's token came from an address: it is not on record,
// there is room for it, and nobody has begun to note it moments ago.
func (r *recording) claimAddress(record *Record, from netip.Addr) bool {
	if !from.IsValid() || slices.Contains(record.Addresses, from) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	claimed := arrival{from, record.Token.Hash, r.now()}
	pending := []arrival{claimed}
	known, _ := r.addresses.Get(record.UID)
	arrivals, _ := known.([]arrival)
	for _, a := range arrivals {
		switch {
		case a.token != claimed.token || claimed.at.Sub(a.at).Abs() >= requestInterval:
		case a.from == from:
			return false
		case !slices.Contains(record.Addresses, a.from):
			pending = append(pending, a)
		}
	}
	if len(record.Addresses)+len(pending) > MaxAddresses {
		return false
	}
	r.addresses.Add(record.UID, pending)
	return true
}

// unclaimAddress takes a claim back whose write has failed.
func (r *recording) unclaimAddress(record *Record, from netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.addresses.Get(record.UID); ok {
		r.addresses.Add(record.UID, slices.DeleteFunc(slices.Clone(known.([]arrival)), func(a arrival) bool { return a.from == from }))
	}
}

// come records where a token came from, which was claimed.
func (r *recording) come(ctx context.Context, record Record, from netip.Addr) error {
	at := r.now()
	err := r.write(ctx, func(ctx context.Context) error { return r.to.Came(ctx, record, from, at) })
	if err != nil {
		r.unclaimAddress(&record, from)
	}
	return err
}
