// Package disruption reads the inputs of package update from API objects: rendered configs (Parse) and the disruption
// policies of pools (PolicyOf). Package update itself does not import the API, because it is also part of a small
// program on hosts.
//
// The package is pure: it gets objects as arguments and calls no API server.
package disruption
