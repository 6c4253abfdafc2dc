// Package rollout decides which hosts of a pool are updated next. It follows the rules of OpenShift's Machine Config
// Operator: hosts that are unavailable for any reason, hosts in an update and hosts whose update failed count against
// maxUnavailable, and the rest is chosen by zone and age.
//
// A Host is what is recorded for a host that has joined, what it was told and what its agent reports; Host.ForRollout
// makes it a Candidate, by which Next decides. HoldOf and the functions about gates say why no host of a pool
// begins an update. The controllers and kubectl poolboot decide by this package, which is pure: it reads no cluster and
// no clock.
package rollout
