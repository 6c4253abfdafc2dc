// Package nodelabels computes derived labels: the Node labels whose values CEL expressions in label rules compute
// from facts about a host, its Machine and its Cluster. The package checks the expressions for the webhooks, evaluates
// the rules when a host boots, and explains each result. It is pure: no client, no I/O.
//
// The host itself reports the facts about its hardware, and can be hostile. They are cut to the sizes that the types
// declare. The cost of each expression is limited: it is estimated for facts of these sizes when the expression is
// compiled, and counted when it is evaluated.
package nodelabels
