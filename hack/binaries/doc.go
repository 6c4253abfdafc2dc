// Package binaries has the tests of how make finds the Kubernetes programs that somebody has already.
package binaries
