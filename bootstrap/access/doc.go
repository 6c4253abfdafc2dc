// Package access has what the config server and the manager must agree on so that a host gets its configuration, and
// nothing else: the URL and the token of a host and the hash of the token that is recorded outside its Secret, the
// rules for enrollment tokens and for the names that an Enrollment admits, and which names and addresses no host can
// have.
//
// The name of a Node is an identity: its kubelet gets certificates for the name, from a certificate authority that
// every client of the cluster trusts. A host that can choose its name must therefore not get one that refers to the API
// server, to a Service or to the local machine. The package is pure: no client, no I/O.
package access
