// Package rollout decides which hosts of a pool are updated next. It follows the rules of OpenShift's Machine Config
// Operator: hosts that are unavailable for any reason, hosts in an update and hosts whose update failed count against
// maxUnavailable, and the rest is chosen by zone and age. The package is pure: it reads no cluster and no clock.
package rollout
