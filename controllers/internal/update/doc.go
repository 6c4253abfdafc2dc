// Package update makes running hosts follow their pools. One reconciler works on pools: it decides which hosts are told
// to have what their pool renders now, and tells them. The other one works on PoolbootConfigs that have joined: it
// drains their Nodes when their agents ask for it, mirrors what the agents report, and pre-registers a Node before the
// kubelet of its host starts again.
//
// What a Node says is a claim of its host, and root on the host can write anything. It never decides about another
// host: at most it keeps or frees the host's own place in the rollout.
package update
