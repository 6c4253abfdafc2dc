// Package binaries tests how make uses existing Kubernetes programs.
package binaries
