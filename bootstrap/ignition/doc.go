// Package ignition reads and writes Ignition, the language in which a host is told what to be.
//
// It reads Ignition of the spec versions 2.0 to 2.4 and 3.0 to 3.5 and Butane, merges configurations as Ignition itself
// does, and writes three documents: the pointer that sits in a host's user data, the answer that the config server
// gives to it, and a configuration in canonical form. It also holds what is Poolboot's own on a host, and refuses
// configurations that would take it over (Guard).
//
// The package is pure: it knows nothing of Kubernetes objects, pools or HTTP, and it reads no files.
package ignition
