// Package input reads the objects that commands answer from, out of files or out of a cluster, and serves both as a
// client.Reader: a command that takes both has one function that gathers what it needs. It decides nothing about pools
// or Nodes.
package input
