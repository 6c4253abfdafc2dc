package hostaccess

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// IsBound says whether a config's token is good from its host's addresses only.
func IsBound(config *bootstrapv1.PoolbootConfig) bool {
	return !config.Spec.IsInline() && config.Spec.ConfigSource.Server.TokenBinding == bootstrapv1.BindToHostAddresses
}

// Refuses says whether the config server refuses a config's token from an address.
func Refuses(config *bootstrapv1.PoolbootConfig, address string) bool {
	return IsBound(config) && !slices.Contains(config.Status.HostAddresses, address)
}

// UsedFrom returns the addresses from which a config's token was used, the latest token if there were several, the first address first.
func UsedFrom(config *bootstrapv1.PoolbootConfig) []string {
	noted := config.Status.Boot.Addresses
	all := slices.SortedFunc(maps.Keys(noted), func(a, b string) int {
		return cmp.Or(noted[a].FirstUsedTime.Compare(noted[b].FirstUsedTime.Time), cmp.Compare(a, b))
	})
	if len(all) == 0 {
		return nil
	}
	latest := noted[all[len(all)-1]].Token
	return slices.DeleteFunc(all, func(address string) bool {
		_, err := netip.ParseAddr(address) // a config server that somebody has taken over could write anything
		return err != nil || noted[address].Token != latest
	})
}
