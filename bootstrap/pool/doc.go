// Package pool holds what a machine config pool means: which pool a set of labels belongs to (Decide), which labels put
// a Node in a pool (Labels), and which configuration the pool's machines get (Render).
//
// The same functions serve a Machine before it boots, a Node after it joined, the webhooks and the command line. The
// package is pure: it is given objects and knows no API server.
package pool
