package token

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/cure"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// maxKnown is how many addresses a token can be bound to, and maxNamed how many of them an event names.
const (
	maxKnown = 256
	maxNamed = 8
)

// unreported returns the addresses that are to be reported and were not: all but the first, and those that are refused.
func unreported(config *bootstrapv1.PoolbootConfig) []string {
	all := record.TokenAddresses(config)
	return slices.DeleteFunc(slices.Clone(all), func(address string) bool {
		return arrival(config, address).ReportedTime != nil || address == all[0] && !record.RefusesAddress(config, address)
	})
}

// arrival returns what is on record of an address from which a config's token came.
func arrival(config *bootstrapv1.PoolbootConfig, address string) *bootstrapv1.TokenAddress {
	noted := config.Status.Boot.Addresses
	return &noted[slices.IndexFunc(noted, func(a bootstrapv1.TokenAddress) bool { return a.Address == address })]
}

// origins are the addresses from which a token came and that are to be reported, and what is known of its host.
type origins struct {
	addresses []string
	// host is the name of the BareMetalHost, and known are its known addresses.
	host  string
	known []string
}

// setAddresses records which addresses a token is bound to, for the config server, and marks as reported each address
// that the token came from beside its first, or that is refused. It returns these.
func (r *Reconciler) setAddresses(ctx context.Context, config *bootstrapv1.PoolbootConfig) (from origins, err error) {
	if from.addresses = unreported(config); len(from.addresses) == 0 && !record.BindsTokenToAddresses(config) && config.Status.HostAddresses == nil {
		return from, nil // as nearly always
	}
	if from.host, from.known, err = r.knownAddresses(ctx, config); err != nil {
		return from, err
	}
	if hasToken(config) {
		if config.Status.HostAddresses = nil; record.BindsTokenToAddresses(config) {
			config.Status.HostAddresses = from.known
		}
	}
	from.addresses = unreported(config) // whether an address is refused depends on those that are known
	for _, address := range from.addresses {
		arrival(config, address).ReportedTime = &metav1.MicroTime{Time: time.Now()}
	}
	return from, nil
}

// reportAddresses reports addresses from which a token came.
func (r *Reconciler) reportAddresses(config *bootstrapv1.PoolbootConfig, from origins) {
	for _, address := range from.addresses {
		reason, why := describe(config, address, from)
		metrics.TokenEvent(config, reason)
		// As the related object: otherwise the recorder counts the events on two addresses as one that is repeated.
		entry := &corev1.ObjectReference{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Namespace: config.Namespace,
			Name: config.Name, UID: config.UID, FieldPath: "status.boot.addresses[" + address + "]"}
		r.Recorder.Eventf(config, entry, corev1.EventTypeWarning, reason, action, "%s: if that is not the host, somebody else has its token: %s", why, cure.Rotate(config))
	}
}

// describe returns the reason and the note of the event on an address.
func describe(config *bootstrapv1.PoolbootConfig, address string, from origins) (reason, why string) {
	if record.RefusesAddress(config, address) {
		whose := strings.TrimSpace("its BareMetalHost " + from.host)
		has := "of which none is known"
		if known := from.known; len(known) > 0 {
			has = "which are known to be " + strings.Join(known[:min(len(known), maxNamed)], ", ")
		}
		return bootstrapv1.EventTokenAddressRefused, fmt.Sprintf("the token came from %s, and is refused from there: it is bound to the addresses of %s, %s. "+
			"If that is the host, add the address to the annotation %s of its BareMetalHost", address, whose, has, poolv1.HostAddressesAnnotation)
	}
	known := ""
	if slices.Contains(from.known, address) {
		known = fmt.Sprintf(", which BareMetalHost %s is known to have", from.host)
	}
	return bootstrapv1.EventTokenUsedFromSecondAddress, fmt.Sprintf("the token came from %s%s, and first from %s", address, known, record.TokenAddresses(config)[0])
}

// knownAddresses returns the name of a config's BareMetalHost and the addresses that it is known to have; nothing while
// it has none.
func (r *Reconciler) knownAddresses(ctx context.Context, config *bootstrapv1.PoolbootConfig) (bmh string, known []string, err error) {
	if record.BindsTokenToAddresses(config) {
		if err := r.watchHardware(); err != nil {
			return "", nil, fmt.Errorf("watch on HardwareData: %w", err)
		}
	}
	found, err := r.hostOf(ctx, r.Client, config)
	if err != nil || found == nil {
		return "", nil, err
	}
	addresses, err := host.Addresses(ctx, r.Client, found.Object)
	for _, address := range addresses {
		known = append(known, address.String())
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return found.Name, known[:min(len(known), maxKnown)], err
}
