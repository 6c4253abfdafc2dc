package rollout

import (
	"fmt"
	"time"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// maxExceptionReason is the maximum size of the reason of an exception in a message, in bytes: what the API allows, if
// all characters have four.
const maxExceptionReason = 1024

// exceptionLeft returns how long an exception still counts. It is not positive for one that has expired.
func exceptionLeft(e *poolv1.UpdateException, now time.Time) time.Duration {
	if e.Until == nil {
		return 0
	}
	return e.Until.Sub(now)
}

// ExceptionOf returns the exception of a pool for the host with a Node, or nil if there is none or it has expired. The
// name is the one that is recorded for the host.
func ExceptionOf(p *poolv1.MachineConfigPool, node string, now time.Time) *poolv1.UpdateException {
	for i := range p.Spec.Updates.Exceptions {
		if e := &p.Spec.Updates.Exceptions[i]; e.Node == node && exceptionLeft(e, now) > 0 {
			return e
		}
	}
	return nil
}

// ExpiredExceptions returns the names of the Nodes in exceptions of a pool that have expired.
func ExpiredExceptions(p *poolv1.MachineConfigPool, now time.Time) (nodes []string) {
	for i := range p.Spec.Updates.Exceptions {
		if e := &p.Spec.Updates.Exceptions[i]; exceptionLeft(e, now) <= 0 {
			nodes = append(nodes, e.Node)
		}
	}
	return nodes
}

// UnusedExceptions returns the names of the Nodes in exceptions of a pool that have not expired and are those of no
// host of the pool.
func UnusedExceptions(p *poolv1.MachineConfigPool, isHost func(node string) bool, now time.Time) (nodes []string) {
	for i := range p.Spec.Updates.Exceptions {
		if e := &p.Spec.Updates.Exceptions[i]; exceptionLeft(e, now) > 0 && !isHost(e.Node) {
			nodes = append(nodes, e.Node)
		}
	}
	return nodes
}

// DescribeException says what an exception does, until when and why, in one line.
func DescribeException(e *poolv1.UpdateException) string {
	does := "skipped"
	if e.Action == poolv1.ExceptionIgnoreWindow {
		does = "ignores the maintenance window"
	}
	return fmt.Sprintf("%s until %s: %s", does, e.Until.UTC().Format(time.RFC3339), Clean(e.Reason, maxExceptionReason))
}
