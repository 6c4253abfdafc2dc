// Package assignment defines what the management cluster and the agent of a running host tell each other.
//
// The manager writes an Assignment for each host: the rendered config of its pool, the machine's own part, and the
// rules for updates. It stores the document in a Secret that the config server reads, and then writes its revision,
// a hash of the whole document, to an annotation of the host's Node. The agent watches that annotation, downloads the
// document from the config server, verifies it with the revision, and reports what it does in other annotations of its
// Node. The config server decides what a host gets by the Secret, never by a Node.
//
// The annotations are in api/agent/v1alpha1. The package is pure, and imports nothing else of the API: it is also part
// of the agent.
package assignment
