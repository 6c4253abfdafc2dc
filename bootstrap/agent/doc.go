// Package agent makes a running host follow its pool: it takes the assignment that the Node's annotation names, plans
// the update, waits for a drain if one is needed, changes the host, verifies that the Node is Ready, and then commits
// the update or undoes it. It also finds what differs from the configuration, and repairs it if the pool says so.
//
// Agent is a state machine. Each decision is in its journal before the host changes, so an agent that was killed, or a
// host that lost power, continues where it was or undoes the update: the host has the old configuration or the new one.
//
// The package decides when something happens. How it happens is behind the interfaces of this package: files are
// changed by hostfiles, everything else by the other packages below this one.
package agent
