// Package hoststate has the state of a host that has joined, as far as updates depend on it: what is recorded for the
// host, what it was told, and what its agent reports. The controllers and kubectl poolboot decide by it. The package is
// pure: it reads no cluster and no clock.
package hoststate
