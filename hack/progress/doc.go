// Package progress has the tests of hack/progress.sh.
package progress
