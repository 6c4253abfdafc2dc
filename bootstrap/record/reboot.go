package record

import (
	"strings"
	"time"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// RebootRequest is a reboot that was requested because the operating system of a host needed it.
type RebootRequest struct {
	// Boot is the ID of the boot that the host is to leave, or left, or "" if none was requested.
	Boot string
	// Time is when it was requested.
	Time time.Time
}

// RebootRequestOf returns the last request for a host.
func RebootRequestOf(config *bootstrapv1.PoolbootConfig) RebootRequest {
	boot, at, _ := strings.Cut(config.Annotations[bootstrapv1.RebootFromAnnotation], " ")
	requested, _ := time.Parse(time.RFC3339, at) // a malformed one is long ago
	return RebootRequest{boot, requested}
}

// String returns the value of the annotation.
func (r RebootRequest) String() string { return r.Boot + " " + r.Time.UTC().Format(time.RFC3339) }
