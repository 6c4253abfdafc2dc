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

// Source finds objects of one kind by their key. After every change of an object, an implementation calls the method of
// the Server for the kind, for example RecordChanged.
type Source[K comparable, V any] interface {
	// Get returns the object with that key, or nil.
	Get(ctx context.Context, key K) (*V, error)
}

// Sources are the objects that the server's answers depend on.
type Sources struct {
	// Records are the PoolbootConfigs.
	Records Source[types.NamespacedName, Record]

	Enrollments Source[types.NamespacedName, Enrollment]

	// Overlays are the overlays of machines, by the UID of the PoolbootConfig.
	Overlays Source[types.UID, Overlay]

	// Assignments are what running hosts should run, by the UID of the PoolbootConfig.
	Assignments Source[types.UID, Assigned]
}

// Record is the part of a PoolbootConfig that the server uses.
type Record struct {
	types.NamespacedName
	UID types.UID

	// PointerID is the last part of the host's URL. It is empty while none is recorded.
	PointerID string

	// Token is the record of the host's token.
	Token record.Token

	// Rotating is true while the token is being rotated.
	Rotating bool

	// Version is the PoolbootConfig's resourceVersion.
	Version string

	// FirstRequestedTime, RequestedTime and ServedTime are those of status.requests, and AnsweredTime is
	// status.boot.answeredRequestTime, or zero if not set. FailedTime is the time of the last report that Ignition
	// failed.
	FirstRequestedTime, RequestedTime, AnsweredTime, ServedTime, FailedTime time.Time

	// RegistrationRequestedTime and RegisteredTime are those of status.update, or zero if not set.
	RegistrationRequestedTime, RegisteredTime time.Time

	// Addresses are the addresses from which the current token was used, in order. OldAddresses are the recorded
	// addresses of earlier tokens.
	Addresses, OldAddresses []netip.Addr

	// TokenAddresses are the unmodified status.requests.addresses: a patch that adds one writes the whole list.
	TokenAddresses []bootstrapv1.TokenAddress

	// Bound is true if the token is accepted from HostAddresses only, and from no address while these are unknown.
	Bound         bool
	HostAddresses []netip.Addr

	// Enrollment is the name of the Enrollment that admitted a host without a Machine, and EnrolledFrom is the host's
	// address. Both are empty for the host of a Machine.
	Enrollment, EnrolledFrom string

	// CredentialID is the ID of the join credential in status.boot. An overlay with another credential is outdated, or
	// newer than the record, and is not served.
	CredentialID string

	// UsedCredential is the ID of the join credential that was already used to obtain a certificate. A host that
	// requests its configuration needs another one.
	UsedCredential string

	// PreparationFailed is true if the boot failed, or waits for something that is missing. Another request makes the
	// manager retry.
	PreparationFailed bool

	// Pending is a text for users about what the boot waits for, or "" if that is unknown.
	Pending string
}

// Enrollment is the part of an Enrollment that the server uses.
type Enrollment struct {
	types.NamespacedName

	// TokenSHA256 is the hash of the token, bound to the UID TokenUID of the Secret. It is empty while there is no
	// valid Secret.
	TokenSHA256 string
	TokenUID    types.UID

	// Role is the role of the pool for the hosts, and Names is the pattern of the names that they can request.
	Role, Names string

	// Expires is the time at which the token expires.
	Expires time.Time

	// Requests are hosts that requested to be admitted and are not admitted, by name.
	Requests map[string]EnrollmentRequest
}

// EnrollmentRequest is a host that requested to be admitted.
type EnrollmentRequest struct {
	Time    time.Time
	Address string
	// Refused is why it is not admitted, or "" while that is not decided.
	Refused string
}

// ErrEnrollmentFull is returned if a request can't be recorded because the Enrollment has the maximum number of
// requests.
var ErrEnrollmentFull = errors.New("the Enrollment has the maximum number of requests")

// AdmissionRecorder records requests of hosts in an Enrollment. It must not change any other field.
type AdmissionRecorder interface {
	// RecordAdmissionRequest sets status.requests[name]. If the maximum is reached, for example because another replica
	// has just added the last one, it returns ErrEnrollmentFull.
	RecordAdmissionRequest(ctx context.Context, enrollment Enrollment, name, address string, at time.Time) error
}

// Overlay is the configuration of one machine.
type Overlay struct {
	// Packed is the overlay as it is put into an answer. It contains the join credential.
	Packed ignition.PackedOverlay

	// Configuration is the name of the rendered config that the host boots with, in the PoolbootConfig's namespace.
	Configuration string

	// AgentSHA512 is the hash of the agent's program that the overlay names, or "".
	AgentSHA512 string

	// Expires is the time at which the join credential in the overlay expires.
	Expires time.Time

	// CredentialID is the ID of that credential.
	CredentialID string

	// Version changes whenever the overlay changes.
	Version string
}

// BootRecorder records a host's requests in its PoolbootConfig. Its methods must not change any other field.
type BootRecorder interface {
	// RecordRequest sets status.requests.requestedTime, and status.requests.firstRequestedTime if the record
	// IsFirstRequest at the time of the write. Unless from is the zero address, it also does what RecordAddress does.
	RecordRequest(ctx context.Context, record Record, from netip.Addr, at time.Time) error
	// RecordAddress adds an address from which the current token was used to status.requests.addresses, and removes the
	// record's OldAddresses. Addresses that others have added meanwhile are kept. If MaxAddresses is reached, or the
	// token has changed, it adds nothing.
	RecordAddress(ctx context.Context, record Record, from netip.Addr, at time.Time) error
	// RecordFailure sets status.requests.ignitionFailure.
	RecordFailure(ctx context.Context, record Record, failure IgnitionFailure, at time.Time) error
	// RecordServed sets status.requests.servedTime.
	RecordServed(ctx context.Context, record Record, at time.Time) error
	// RecordRegistrationRequest sets status.requests.registrationRequestedTime.
	RecordRegistrationRequest(ctx context.Context, record Record, at time.Time) error
}
