// Package desired builds the assignment of a host: what it should run. It is built when the host boots for the first
// time, and again whenever one of its inputs changes. The same inputs result in the same document, byte for byte, so a
// host whose inputs are unchanged has nothing to do.
//
// A host has what its first assignment contains when Ignition has run: Machine returns the overlay of the first boot
// from the same input, and the assignment contains the part of it that outlives the join. Agents find this first
// assignment in the Secret that was stored before the host got its overlay. So a controller that takes over a host that
// has joined starts with the document in that Secret, and not with a newly built one.
//
// The package is pure: it gets objects as arguments and calls no API server.
package desired
