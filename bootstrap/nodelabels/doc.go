// Package nodelabels makes Node labels out of what is known of a host, its Machine and its Cluster, by rules in CEL:
// the nodeLabelRules of pools and PoolbootConfigs. It checks expressions for the webhooks, evaluates rules for the boot
// of a host, and tells for each why it came out as it did. It is pure: no client, no I/O.
//
// Facts of hardware come from the hardware and may be hostile: they are cut to sizes that the types declare, and every
// expression has a limit on its cost, estimated for facts of those sizes when it is compiled and counted when it is
// evaluated.
package nodelabels
