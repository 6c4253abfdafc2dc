package server

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Sources are what it is decided by who gets what.
type Sources struct {
	Records     Records
	Enrollments Enrollments
	Overlays    Overlays
}

// Record is what the server needs to know of a PoolbootConfig.
type Record struct {
	types.NamespacedName
	UID types.UID

	// PointerID is the last part of the URL by which the record's host asks: empty while none is on record.
	PointerID string

	// Token is what is on record of the host's token.
	Token record.Token

	// Rotating says that another token is about to be on record.
	Rotating bool

	// Version is the PoolbootConfig's resourceVersion.
	Version string

	// FirstRequestedTime, RequestedTime, PreparedTime and ServedTime are those of status.boot; zero when not set.
	FirstRequestedTime, RequestedTime, PreparedTime, ServedTime time.Time

	// Addresses are those from which the token came that is on record, the first one first. OldAddresses are the other
	// ones that are noted, of tokens before it.
	Addresses, OldAddresses []netip.Addr

	// TokenAddresses are status.boot.addresses as they are: who adds one writes them all.
	TokenAddresses []bootstrapv1.TokenAddress

	// Bound says that the token is good from HostAddresses alone; from none while they are not known.
	Bound         bool
	HostAddresses []netip.Addr

	// Enrollment names the Enrollment by which a host without a Machine was admitted, and EnrolledFrom is the address
	// that it came from; empty for the host of a Machine.
	Enrollment, EnrolledFrom string

	// CredentialID is the ID of the join credential that is on record. An overlay with another one is not for the host,
	// yet or any more.
	CredentialID string

	// UsedCredential is the ID of the join credential that has got its one certificate; a host that asks needs another
	// one.
	UsedCredential string

	// Troubled says that the boot failed, or waits for something that has not come: asking again has it tried again.
	Troubled bool

	// Pending says, for people, what the boot waits for; empty when nothing is known.
	Pending string
}

// Records finds PoolbootConfigs. An implementation calls Server.RecordChanged after every change.
type Records interface {
	// Get returns the PoolbootConfig of that name, or nil.
	Get(ctx context.Context, name types.NamespacedName) (*Record, error)
}

// Enrollment is what the server needs to know of an enrollment token.
type Enrollment struct {
	types.NamespacedName

	// TokenSHA256 is the hash of the token, bound to the Secret of UID TokenUID; empty while there is no valid Secret.
	TokenSHA256 string
	TokenUID    types.UID

	// Role is that of the pool which hosts are admitted to, Names the pattern of the names that they may take.
	Role, Names string

	// Expires is when the token ends.
	Expires time.Time

	// Requests are hosts that asked and are not admitted, by name.
	Requests map[string]EnrollmentRequest
}

// EnrollmentRequest is a host that asked to be admitted.
type EnrollmentRequest struct {
	Time    time.Time
	Address string
	// Refused is why it is not admitted; empty while that is not decided.
	Refused string
}

// Enrollments finds enrollments. An implementation calls Server.EnrollmentChanged after every change.
type Enrollments interface {
	// Get returns the Enrollment of that name, or nil.
	Get(ctx context.Context, name types.NamespacedName) (*Enrollment, error)
}

// ErrEnrollmentFull is why no further host can be recorded: as many as an Enrollment holds have asked and are not
// admitted.
var ErrEnrollmentFull = errors.New("the Enrollment holds as many requests as it may")

// AdmissionRecorder writes into an enrollment that a host asks. It must touch no other field.
type AdmissionRecorder interface {
	// Asked sets status.requests[name]. When there are too many of them, as when another replica has just written the
	// last one, it returns ErrEnrollmentFull.
	Asked(ctx context.Context, enrollment Enrollment, name, address string, at time.Time) error
}

// Overlay is the configuration of one machine, made when its host asked.
type Overlay struct {
	// Packed is the overlay as it goes into an answer. It holds the join credential.
	Packed ignition.PackedOverlay

	// Configuration names the rendered config that the host is to boot with, in the PoolbootConfig's namespace.
	Configuration string

	// Expires is when the join credential in the overlay ends.
	Expires time.Time

	// CredentialID is the ID of that credential.
	CredentialID string

	// Version changes whenever the overlay does.
	Version string
}

// Overlays finds the overlays of machines. An implementation calls Server.OverlayChanged after every change.
type Overlays interface {
	// Get returns the overlay that stands for the PoolbootConfig of that UID, or nil.
	Get(ctx context.Context, config types.UID) (*Overlay, error)
}

// RenderedConfigs finds rendered MachineConfigs. An implementation calls Server.RenderedChanged after every change.
type RenderedConfigs interface {
	// Get returns what PackRendered made of the rendered MachineConfig of that name, or nil. It is called for every
	// request, and waits for nothing.
	Get(ctx context.Context, name types.NamespacedName) (*PoolBytes, error)
}

// BootRecorder writes a host's requests into its PoolbootConfig. Its methods must touch no other field.
type BootRecorder interface {
	// Requested sets status.boot.requestedTime, and status.boot.firstRequestedTime if the record, as it is when that is
	// written, BeginsBoot. Unless from is the zero address, it does what Came does.
	Requested(ctx context.Context, record Record, from netip.Addr, at time.Time) error
	// Came adds to status.boot.addresses that the token on record came from an address, and takes the record's
	// OldAddresses out. What others have added meanwhile stays; when they have added MaxAddresses, or another token is
	// on record, it adds nothing.
	Came(ctx context.Context, record Record, from netip.Addr, at time.Time) error
	// Served sets status.boot.servedTime.
	Served(ctx context.Context, record Record, at time.Time) error
}
