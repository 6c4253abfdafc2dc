package record

import (
	"cmp"
	"net/netip"
	"slices"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// BindsTokenToAddresses reports whether the token of a PoolbootConfig's host is accepted only from the addresses of the
// host.
func BindsTokenToAddresses(config *bootstrapv1.PoolbootConfig) bool {
	return !config.Spec.IsInline() && config.Spec.ConfigSource.Server.TokenBinding == bootstrapv1.TokenBindingHostAddresses
}

// RefusesAddress reports whether the config server refuses the token of a PoolbootConfig's host from an address.
func RefusesAddress(config *bootstrapv1.PoolbootConfig, address string) bool {
	return BindsTokenToAddresses(config) && !slices.Contains(config.Status.HostAddresses, address)
}

// TokenAddresses returns the addresses from which the latest token of a PoolbootConfig's host was used, in the order of
// their first use.
func TokenAddresses(config *bootstrapv1.PoolbootConfig) []string {
	noted := slices.SortedFunc(slices.Values(config.Status.Requests.Addresses), ByFirstUse)
	var latest []string
	for _, address := range noted {
		if _, err := netip.ParseAddr(address.Address); err == nil && address.Token == noted[len(noted)-1].Token {
			latest = append(latest, address.Address)
		}
	}
	return latest
}

// ByFirstUse compares two addresses by the time when a token was first used from them.
func ByFirstUse(a, b bootstrapv1.TokenAddress) int {
	return cmp.Or(a.FirstUsedTime.Compare(b.FirstUsedTime.Time), cmp.Compare(a.Address, b.Address))
}
