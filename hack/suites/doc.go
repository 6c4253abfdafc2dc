// Package suites tests hack/suites.sh.
package suites
