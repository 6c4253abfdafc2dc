// Package update makes running hosts follow their pools. It has two halves, which share what the hosts of a pool are to
// run. A reconciler works on pools: it gives slots to the hosts that may be away for an update. Phases of the
// reconciler of hosts act on these slots: they tell hosts what to run, drain their Nodes when their agents ask for it,
// mirror what the agents report, and pre-register a Node before the kubelet of its host starts again.
//
// What a Node says is a claim of its host, and root on the host can write anything. It never decides about another
// host: at most it keeps or frees the host's own slot.
package update
