package hostaccess

import (
	"cmp"
	"net/netip"
	"slices"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// IsBound says whether a config's token is good from its host's addresses only.
func IsBound(config *bootstrapv1.PoolbootConfig) bool {
	return !config.Spec.IsInline() && config.Spec.ConfigSource.Server.TokenBinding == bootstrapv1.TokenBindingHostAddresses
}

// Refuses says whether the config server refuses a config's token from an address.
func Refuses(config *bootstrapv1.PoolbootConfig, address string) bool {
	return IsBound(config) && !slices.Contains(config.Status.HostAddresses, address)
}

// UsedFrom returns the addresses from which a config's token was used, the latest token if there were several, the
// first address first.
func UsedFrom(config *bootstrapv1.PoolbootConfig) []string {
	noted := slices.SortedFunc(slices.Values(config.Status.Boot.Addresses), ByFirstUse)
	var latest []string
	for _, address := range noted {
		if _, err := netip.ParseAddr(address.Address); err == nil && address.Token == noted[len(noted)-1].Token {
			latest = append(latest, address.Address)
		}
	}
	return latest
}

// ByFirstUse compares two addresses by when a token first came from them.
func ByFirstUse(a, b bootstrapv1.TokenAddress) int {
	return cmp.Or(a.FirstUsedTime.Compare(b.FirstUsedTime.Time), cmp.Compare(a.Address, b.Address))
}
