package boots

import (
	"strings"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Address is an address from which a host's token was used.
type Address struct {
	Address string `json:"address"`
	// Refused is true when the token is bound to other addresses.
	Refused bool `json:"refused"`
}

func (a Address) String() string {
	if a.Refused {
		return a.Address + "(refused)"
	}
	return a.Address
}

// AddressesOf returns the addresses from which a host's token was used, the first one first. Of a host that enrolled it
// is the address that it enrolled from.
func AddressesOf(config *bootstrapv1.PoolbootConfig) []Address {
	if enrolled := config.Spec.Enrolled(); enrolled != nil {
		return []Address{{Address: enrolled.Address}}
	}
	addresses := []Address{} // never null
	for _, address := range record.TokenAddresses(config) {
		addresses = append(addresses, Address{Address: address, Refused: record.RefusesAddress(config, address)})
	}
	return addresses
}

// JoinAddresses returns addresses as one text.
func JoinAddresses(addresses []Address, separator string) string {
	texts := make([]string, len(addresses))
	for i, address := range addresses {
		texts[i] = address.String()
	}
	return strings.Join(texts, separator)
}
