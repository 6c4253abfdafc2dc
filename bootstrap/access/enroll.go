package access

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
)

// tokenPattern matches a b64token of RFC 6750 that is long enough that its hash does not reveal it.
var tokenPattern = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{32,512}=*$`)

// EnrollmentToken returns the token in a Secret of type poolv1.EnrollmentTokenType. Its errors never contain data of
// the Secret.
func EnrollmentToken(secret *corev1.Secret) (string, error) {
	if secret.Type != poolv1.EnrollmentTokenType {
		return "", fmt.Errorf("type: it must be %s", poolv1.EnrollmentTokenType)
	}
	token := string(secret.Data[poolv1.EnrollmentTokenKey])
	if !tokenPattern.MatchString(token) {
		return "", fmt.Errorf("data.%s: it must have 32 to 512 random characters that are valid in a bearer token", poolv1.EnrollmentTokenKey)
	}
	return token, nil
}

// Limits of an Enrollment. The API server enforces the same limits.
const (
	maxUses   = 1000
	maxRanges = 32
)

// CheckEnrollment returns an error that names the wrong field of a new Enrollment, before the API server validates it.
func CheckEnrollment(spec poolv1.EnrollmentSpec) error {
	if problems := validation.IsDNS1123Label(spec.PoolRole); len(problems) > 0 {
		return fmt.Errorf("spec.poolRole: %q is not a valid role of a pool: %s", spec.PoolRole, strings.Join(problems, "; "))
	}
	if err := CheckPattern(spec.NamePattern); err != nil {
		return fmt.Errorf("spec.namePattern: %w", err)
	}
	if spec.MaxUses < 1 || spec.MaxUses > maxUses {
		return fmt.Errorf("spec.maxUses: it must be from 1 to %d", maxUses)
	}
	if len(spec.AddressRanges) > maxRanges {
		return fmt.Errorf("spec.addressRanges: it has %d address ranges, and the limit is %d", len(spec.AddressRanges), maxRanges)
	}
	for _, text := range spec.AddressRanges {
		switch prefix, err := netip.ParsePrefix(text); {
		case err != nil:
			return fmt.Errorf("spec.addressRanges: %q is not an address range: write CIDRs such as 192.0.2.0/24,2001:db8::/64", text)
		case prefix.Bits() == 0:
			return fmt.Errorf("spec.addressRanges: %q contains all addresses: set the range of the hosts", text)
		case prefix != prefix.Masked():
			return fmt.Errorf("spec.addressRanges: %q has host bits: write %s", text, prefix.Masked())
		}
	}
	return nil
}

// CheckPattern returns an error for a wrong name pattern of an Enrollment. It checks what the API server does not
// check.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return errors.New("it is not a valid pattern: set a pattern such as edge-*")
	}
	return (Cluster{}).CheckPattern(pattern)
}

// InRanges reports whether an address is in one of the address ranges of an Enrollment.
func InRanges(ranges []string, address netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		prefix, err := netip.ParsePrefix(text)
		return err == nil && prefix.Contains(address.Unmap().WithZone(""))
	})
}

// CheckName returns why a host cannot get a name. It returns "" if it can. The name becomes the name of a Node and the
// value of a label on that Node. Names that only the cluster reserves, such as its control plane endpoint, are checked
// when the host is admitted.
func CheckName(pattern, name string) string {
	if problems := append(validation.IsDNS1123Subdomain(name), validation.IsValidLabelValue(name)...); len(problems) > 0 {
		return "it cannot be the name of a Node: " + strings.Join(problems, "; ")
	}
	if err := (Cluster{}).CheckNodeName(name); err != nil {
		return err.Error()
	}
	if match, err := path.Match(pattern, name); err != nil || !match {
		return fmt.Sprintf("the token is for names like %s", pattern)
	}
	return ""
}

// PointerID returns the pointer ID of a host that was admitted with a name. The manager and the config server both
// compute it, so they need not exchange it. It does not change when the objects move to another management cluster.
func PointerID(namespace, enrollment, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + enrollment + "/" + name))
	return "enrolled-" + hex.EncodeToString(sum[:16])
}
