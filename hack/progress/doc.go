// Package progress tests hack/progress.sh.
package progress
