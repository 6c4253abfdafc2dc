package server

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// MaxAddresses is the maximum number of addresses that are recorded for a token. It limits the writes that a stolen
// token can cause.
const MaxAddresses = 8

// Results for a valid token from an address other than the host's, as in metrics.
const (
	addressAllowed = "allowed"
	addressRefused = "refused"
)

// addressOf returns the source address of a request. It ignores headers of proxies, because any client can send them.
func addressOf(r *http.Request) netip.Addr {
	return hostOf(r.RemoteAddr)
}

// hostOf returns the address in an address with a port.
func hostOf(address string) netip.Addr {
	from, _ := netip.ParseAddrPort(address)
	return from.Addr().Unmap().WithZone("")
}

// checkAddress refuses a valid token that is bound to other addresses, and records the source address. The host can
// retry, because the known addresses of its BareMetalHost can change.
func (s *Server) checkAddress(ctx context.Context, record *Record, from netip.Addr) error {
	if !record.Bound || slices.Contains(record.HostAddresses, from) {
		if len(record.Addresses) > 0 && record.Addresses[0] != from {
			s.opts.Metrics.otherAddress.WithLabelValues(addressAllowed).Inc()
		}
		return nil
	}
	s.recordAddress(ctx, record, from)
	s.opts.Metrics.otherAddress.WithLabelValues(addressRefused).Inc()
	if len(record.HostAddresses) == 0 {
		return notReady("the token is bound to the addresses of its BareMetalHost, and no address of it is known yet. Try again")
	}
	return newRefusal(http.StatusServiceUnavailable, "AddressNotBound", "the token is bound to the addresses of its BareMetalHost, "+
		"and %s is not one of its known addresses: see the events of PoolbootConfig %s", from, record.NamespacedName)
}

// recordAddress records in the background that a valid token was used from an address, unless that is recorded.
func (s *Server) recordAddress(ctx context.Context, record *Record, from netip.Addr) {
	if !s.recording.claimAddress(record, from) {
		return
	}
	recordCopy := *record
	s.writes.Go(func() {
		if err := s.recording.writeAddress(context.WithoutCancel(ctx), recordCopy, from); err != nil {
			s.opts.Metrics.recordErrors.Inc()
			s.opts.Log.Error(err, "Could not record the address from which a token was used", "PoolbootConfig", recordCopy.NamespacedName, "address", from)
		}
	})
}

// tokenUse is the use of a token from an address whose write is in progress, or so recent that the cached record might
// not show it.
type tokenUse struct {
	from  netip.Addr
	token string // its hash
	at    time.Time
}

// claimAddress reports whether the caller must record that a record's token was used from an address: it is not
// recorded, the maximum is not reached, and no other request has started to record it moments ago.
func (r *recording) claimAddress(record *Record, from netip.Addr) bool {
	if !from.IsValid() || slices.Contains(record.Addresses, from) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	claim := tokenUse{from, record.Token.Hash, r.now()}
	pending := []tokenUse{claim}
	cached, _ := r.addresses.Get(record.UID)
	earlier, _ := cached.([]tokenUse)
	for _, use := range earlier {
		switch {
		case use.token != claim.token || claim.at.Sub(use.at).Abs() >= requestInterval:
		case use.from == from:
			return false
		case !slices.Contains(record.Addresses, use.from):
			pending = append(pending, use)
		}
	}
	if len(record.Addresses)+len(pending) > MaxAddresses {
		return false
	}
	r.addresses.Add(record.UID, pending)
	return true
}

// unclaimAddress reverts a claim whose write has failed.
func (r *recording) unclaimAddress(record *Record, from netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cached, ok := r.addresses.Get(record.UID); ok {
		uses := slices.Clone(cached.([]tokenUse))
		r.addresses.Add(record.UID, slices.DeleteFunc(uses, func(use tokenUse) bool { return use.from == from }))
	}
}

// writeAddress records a claimed address.
func (r *recording) writeAddress(ctx context.Context, record Record, from netip.Addr) error {
	at := r.now()
	err := r.write(ctx, func(ctx context.Context) error { return r.boots.RecordAddress(ctx, record, from, at) })
	if err != nil {
		r.unclaimAddress(&record, from)
	}
	return err
}
