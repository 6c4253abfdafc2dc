// Package ignition reads and writes Ignition, the configuration format of hosts.
//
// It reads Ignition of the spec versions 2.0 to 2.4 and 3.0 to 3.6 and Butane, merges configurations as Ignition itself
// does, and writes three documents: the pointer in a host's user data, the config server's answer to the host, and a
// configuration in canonical form. It also defines the paths, units and settings of a host that Poolboot manages, and
// refuses configurations that would change them (Guard). It describes what is wrong in a document without the names of
// Go (FindMistakes).
//
// The package is pure: it knows nothing of Kubernetes objects, pools or HTTP, and it reads no files.
package ignition
