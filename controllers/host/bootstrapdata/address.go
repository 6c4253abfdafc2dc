package bootstrapdata

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// maxBound is the maximum number of addresses to which a token can be bound, and maxNamed that of addresses in an
// event.
const (
	maxBound = 256
	maxNamed = 8
)

// unreported returns the addresses that must be reported and were not yet: all except the first one, and those that are
// refused.
func unreported(config *bootstrapv1.PoolbootConfig) []string {
	all := record.TokenAddresses(config)
	return slices.DeleteFunc(slices.Clone(all), func(address string) bool {
		return isReported(config, address) || address == all[0] && !record.RefusesAddress(config, address)
	})
}

// isReported reports whether the use of a token from an address was reported.
func isReported(config *bootstrapv1.PoolbootConfig, address string) bool {
	return slices.ContainsFunc(config.Status.ReportedAddresses, func(reported bootstrapv1.ReportedAddress) bool {
		return reported.Address == address && !isForgotten(config, reported)
	})
}

// isForgotten reports whether the use of a token that was reported is no longer recorded: another token is used from
// the address, or another host uses it.
func isForgotten(config *bootstrapv1.PoolbootConfig, reported bootstrapv1.ReportedAddress) bool {
	return !slices.ContainsFunc(config.Status.Requests.Addresses, func(a bootstrapv1.TokenAddress) bool {
		return a.Address == reported.Address && a.FirstUsedTime.Equal(&reported.FirstUsedTime)
	})
}

// setReported records that the uses of a token from these addresses are reported.
func setReported(config *bootstrapv1.PoolbootConfig, addresses []string) {
	config.Status.ReportedAddresses = slices.DeleteFunc(config.Status.ReportedAddresses, func(reported bootstrapv1.ReportedAddress) bool {
		return isForgotten(config, reported)
	})
	for _, a := range config.Status.Requests.Addresses {
		if slices.Contains(addresses, a.Address) {
			config.Status.ReportedAddresses = append(config.Status.ReportedAddresses, bootstrapv1.ReportedAddress{Address: a.Address, FirstUsedTime: a.FirstUsedTime})
		}
	}
}

// reportableAddresses has the addresses to report, and the known addresses of the host.
type reportableAddresses struct {
	addresses []string
	// host is the name of the BareMetalHost, and known are its known addresses.
	host  string
	known []string
}

// setAddresses records the addresses to which a token is bound, for the config server. It marks the unreported
// addresses as reported and returns them.
func (r *Phases) setAddresses(ctx context.Context, s *state) (report reportableAddresses, err error) {
	config := s.Config
	isBound := hasToken(config) && (record.BindsTokenToAddresses(config) || config.Status.HostAddresses != nil)
	if report.addresses = unreported(config); len(report.addresses) == 0 && !isBound {
		return report, nil // the usual case
	}
	if report.host, report.known, err = r.knownAddresses(ctx, s); err != nil {
		return report, err
	}
	if hasToken(config) {
		if config.Status.HostAddresses = nil; record.BindsTokenToAddresses(config) {
			config.Status.HostAddresses = report.known
		}
	}
	report.addresses = unreported(config) // whether an address is refused depends on the known addresses
	if len(report.addresses) > 0 {
		setReported(config, report.addresses)
	}
	return report, nil
}

// reportAddresses sends an event for each address.
func (r *Phases) reportAddresses(config *bootstrapv1.PoolbootConfig, report reportableAddresses) {
	for _, address := range report.addresses {
		reason, why := describe(config, address, report)
		metrics.TokenEvent(config, reason)
		// As the related object: otherwise the recorder counts the events on two addresses as one that is repeated.
		entry := &corev1.ObjectReference{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Namespace: config.Namespace,
			Name: config.Name, UID: config.UID, FieldPath: "status.requests.addresses[" + address + "]"}
		r.Recorder.Eventf(config, entry, corev1.EventTypeWarning, reason, guardTokenAction, "%s: if this is not an address of the host, another client has its token: %s", why, outlook.HowToRotate(config))
	}
}

// describe returns the reason and the message of the event about an address.
func describe(config *bootstrapv1.PoolbootConfig, address string, report reportableAddresses) (reason, why string) {
	if record.RefusesAddress(config, address) {
		bmh := strings.TrimSpace("its BareMetalHost " + report.host)
		addresses := "none"
		if known := report.known; len(known) > 0 {
			addresses = strings.Join(known[:min(len(known), maxNamed)], ", ")
		}
		return bootstrapv1.EventTokenAddressRefused, fmt.Sprintf("the token was used from %s and refused: it is bound to the known addresses of %s (%s). "+
			"If only this host ever has this address, add it to the annotation %s of its BareMetalHost. If it is a temporary IPv6 address, turn off privacy extensions in the image", address, bmh, addresses, poolv1.HostAddressesAnnotation)
	}
	known := ""
	if slices.Contains(report.known, address) {
		known = fmt.Sprintf(", a known address of BareMetalHost %s", report.host)
	}
	return bootstrapv1.EventTokenUsedFromSecondAddress, fmt.Sprintf("the token was used from %s%s, but first from %s", address, known, record.TokenAddresses(config)[0])
}

// knownAddresses returns the name and the known addresses of the BareMetalHost of a PoolbootConfig, and nothing if it
// has none.
func (r *Phases) knownAddresses(ctx context.Context, s *state) (name string, known []string, err error) {
	if record.BindsTokenToAddresses(s.Config) {
		if err := r.WatchHardware(); err != nil {
			return "", nil, fmt.Errorf("watch on HardwareData: %w", err)
		}
	}
	bmh, err := s.Host(ctx, r.Client)
	if err != nil || bmh == nil {
		return "", nil, err
	}
	addresses, err := host.Addresses(ctx, r.Client, bmh.Object)
	if err != nil {
		return bmh.Name, nil, err
	}
	pools, err := s.Pools(ctx)
	if err != nil {
		return bmh.Name, nil, err
	}
	static, err := r.NetworkData.Addresses(ctx, bmh.Object, pool.NetworkRendererOfRole(s.Config.Status.PoolRole, pools))
	for _, address := range append(addresses, static...) {
		known = append(known, address.String())
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return bmh.Name, known[:min(len(known), maxBound)], err
}
