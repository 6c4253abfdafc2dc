// Package enroll knows enrollment tokens: what the Secret of one must hold, which names it lets hosts take, and by which
// pointer id a host that was admitted is known to the config server. It is pure: no client, no I/O.
package enroll

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
)

// MaxUses is the most names that one token may give out: the list of them is kept in one object.
const MaxUses = 1000

// tokenPattern is the b64token of RFC 6750, long enough that its hash gives nothing away.
var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{32,512}=*$`)

// SecretError is what is wrong with the Secret of an enrollment token.
type SecretError struct{ Key, Why string }

func (e *SecretError) Error() string { return fmt.Sprintf("data.%s: %s", e.Key, e.Why) }

// Read returns what a Secret of type poolv1.EnrollmentTokenType says, with nobody admitted. Errors are *SecretError.
func Read(secret *corev1.Secret) (poolv1.EnrollmentSpec, error) {
	said := func(key string) string { return string(secret.Data[key]) }
	wrong := func(key, why string, args ...any) (poolv1.EnrollmentSpec, error) {
		return poolv1.EnrollmentSpec{}, &SecretError{Key: key, Why: fmt.Sprintf(why, args...)}
	}
	spec := poolv1.EnrollmentSpec{
		ClusterName: secret.Labels[clusterv1.ClusterNameLabel], PoolRole: said(poolv1.EnrollmentRoleKey), NamePattern: said(poolv1.EnrollmentNamesKey),
	}
	if problems := validation.IsDNS1123Label(spec.PoolRole); len(problems) > 0 {
		return wrong(poolv1.EnrollmentRoleKey, "%q is no role of a pool: %s", spec.PoolRole, strings.Join(problems, "; "))
	}
	if _, err := path.Match(spec.NamePattern, ""); err != nil || spec.NamePattern == "" || len(spec.NamePattern) > validation.DNS1123SubdomainMaxLength {
		return wrong(poolv1.EnrollmentNamesKey, "%q is no pattern of names: write one such as edge-*", spec.NamePattern)
	}
	if err := (identity.Cluster{}).CheckPattern(spec.NamePattern); err != nil {
		return wrong(poolv1.EnrollmentNamesKey, "%s", err)
	}
	uses, err := strconv.ParseInt(said(poolv1.EnrollmentUsesKey), 10, 32)
	if err != nil || uses < 1 || uses > MaxUses {
		return wrong(poolv1.EnrollmentUsesKey, "%q must be a number from 1 to %d", said(poolv1.EnrollmentUsesKey), MaxUses)
	}
	spec.MaxUses = int32(uses)
	expires, err := time.Parse(time.RFC3339, said(poolv1.EnrollmentExpiresKey))
	if err != nil {
		return wrong(poolv1.EnrollmentExpiresKey, "%q must be a time such as %s", said(poolv1.EnrollmentExpiresKey), time.DateOnly+"T15:04:05Z")
	}
	spec.ExpirationTime = &metav1.Time{Time: expires}
	ranges, err := readRanges(said(poolv1.EnrollmentAddressRangesKey))
	if err != nil {
		return wrong(poolv1.EnrollmentAddressRangesKey, "%s", err)
	}
	spec.AddressRanges = ranges
	if !tokenPattern.MatchString(said(poolv1.EnrollmentTokenKey)) {
		return wrong(poolv1.EnrollmentTokenKey, "it must be 32 random characters or more, of those that a bearer token may have")
	}
	owner := hostaccess.Enrollment(types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}, secret.UID)
	spec.TokenSHA256, spec.SecretUID = owner.Hash(said(poolv1.EnrollmentTokenKey)), string(secret.UID)
	return spec, nil
}

// maxRanges is how many address ranges one token may name.
const maxRanges = 32

// readRanges reads address ranges, separated by commas.
func readRanges(text string) ([]string, error) {
	var ranges []string
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		prefix, err := netip.ParsePrefix(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is not an address range: write CIDRs such as 192.0.2.0/24,2001:db8::/64", part)
		case prefix.Bits() == 0:
			return nil, fmt.Errorf("%q is every address: name the range of the hosts", part)
		}
		if masked := prefix.Masked().String(); !slices.Contains(ranges, masked) {
			ranges = append(ranges, masked)
		}
	}
	if len(ranges) > maxRanges {
		return nil, fmt.Errorf("it names %d address ranges, the limit is %d", len(ranges), maxRanges)
	}
	return ranges, nil
}

// InRanges says whether an address is in one of the address ranges of an Enrollment.
func InRanges(ranges []string, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(address.Unmap().WithZone(""))
	})
}

// Allows says why a host may not take a name; "" when it may. The name becomes a Node's, and a label's value on it. What only the
// cluster can tell, such as that it is the control plane endpoint's, is checked when the host is admitted.
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

// PointerID is the pointer id of a host that was admitted under a name. Both sides work it out, so that neither has to tell
// the other, and it stays the same when the objects move to another management cluster.
func PointerID(namespace, enrollment, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + enrollment + "/" + name))
	return "enrolled-" + hex.EncodeToString(sum[:16])
}
