// Package enroll knows enrollment tokens: what the Secret of one must hold, which names an Enrollment lets hosts take,
// and by which pointer id a host that was admitted is known to the config server. It is pure: no client, no I/O.
package enroll

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
)

// tokenPattern is the b64token of RFC 6750, long enough that its hash gives nothing away.
var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{32,512}=*$`)

// Token returns the token in a Secret of type poolv1.EnrollmentTokenType. Its error never holds what is in the Secret.
func Token(secret *corev1.Secret) (string, error) {
	if secret.Type != poolv1.EnrollmentTokenType {
		return "", fmt.Errorf("type: it must be %s", poolv1.EnrollmentTokenType)
	}
	token := string(secret.Data[poolv1.EnrollmentTokenKey])
	if !tokenPattern.MatchString(token) {
		return "", fmt.Errorf("data.%s: it must be 32 to 512 random characters, of those that a bearer token may have", poolv1.EnrollmentTokenKey)
	}
	return token, nil
}

// Limits of an Enrollment, as the API server holds it to them.
const (
	maxUses   = 1000
	maxRanges = 32
)

// Check returns what is wrong with a new Enrollment, by its field, before the API server sees it.
func Check(spec poolv1.EnrollmentSpec) error {
	if problems := validation.IsDNS1123Label(spec.PoolRole); len(problems) > 0 {
		return fmt.Errorf("spec.poolRole: %q is not a role of a pool: %s", spec.PoolRole, strings.Join(problems, "; "))
	}
	if err := CheckPattern(spec.NamePattern); err != nil {
		return fmt.Errorf("spec.namePattern: %w", err)
	}
	if spec.MaxUses < 1 || spec.MaxUses > maxUses {
		return fmt.Errorf("spec.maxUses: it must be from 1 to %d", maxUses)
	}
	if len(spec.AddressRanges) > maxRanges {
		return fmt.Errorf("spec.addressRanges: it names %d address ranges, the limit is %d", len(spec.AddressRanges), maxRanges)
	}
	for _, text := range spec.AddressRanges {
		switch prefix, err := netip.ParsePrefix(text); {
		case err != nil:
			return fmt.Errorf("spec.addressRanges: %q is not an address range: write CIDRs such as 192.0.2.0/24,2001:db8::/64", text)
		case prefix.Bits() == 0:
			return fmt.Errorf("spec.addressRanges: %q is every address: name the range of the hosts", text)
		case prefix != prefix.Masked():
			return fmt.Errorf("spec.addressRanges: %q has host bits: write %s", text, prefix.Masked())
		}
	}
	return nil
}

// CheckPattern returns what is wrong with the pattern of names of an Enrollment, as far as the API server does not
// check it.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return errors.New("it is not a pattern of names: write one such as edge-*")
	}
	return (identity.Cluster{}).CheckPattern(pattern)
}

// InRanges says whether an address is in one of the address ranges of an Enrollment.
func InRanges(ranges []string, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(address.Unmap().WithZone(""))
	})
}

// Allows says why a host may not take a name; "" when it may. The name becomes a Node's, and a label's value on it.
// What only the cluster can tell, such as that it is the control plane endpoint's, is checked when the host is
// admitted.
func Allows(pattern, name string) string {
	if problems := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...); len(problems) > 0 {
		return "it can't be the name of a Node: " + strings.Join(problems, "; ")
	}
	if err := (identity.Cluster{}).CheckNodeName(name); err != nil {
		return err.Error()
	}
	if match, err := path.Match(pattern, name); err != nil || !match {
		return fmt.Sprintf("the token is for names like %s", pattern)
	}
	return ""
}

// PointerID is the pointer id of a host that was admitted under a name. Both sides work it out, so that neither has to
// tell the other, and it stays the same when the objects move to another management cluster.
func PointerID(namespace, enrollment, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + enrollment + "/" + name))
	return "enrolled-" + hex.EncodeToString(sum[:16])
}
