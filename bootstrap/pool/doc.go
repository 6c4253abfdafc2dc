// Package pool implements machine config pools: it decides which pool a set of labels belongs to (Decide), derives the
// labels that put a Node in a pool (Labels), and renders the configuration of the pool's machines (Render). It
// also reads the inputs of package update from API objects: rendered configs (ParseRendered) and disruption policies
// (UpdatePolicyOf). Package update does not import the API, because it is also part of a program on hosts.
//
// The reconcilers, the webhooks and the command line use the same functions, for Machines before they boot and for
// Nodes after they joined. The package is pure: it gets objects as arguments and calls no API server.
package pool
