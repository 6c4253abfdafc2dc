// Package join creates everything that a host needs to join its cluster: the join credential and its permissions, in
// the workload cluster, and the overlay, which is the part of the Ignition configuration that belongs to one machine.
// It supports the join types Kubelet and Kubeadm. It writes credentials and permissions with the client of the caller.
// Overlays are pure. Machine.Lasting returns what a host keeps of its overlay after it joined.
//
// The sentinel file of Cluster API reports that a host has joined. poolboot-joined.path and poolboot-joined.service
// create it when the client certificate of the kubelet exists, at every boot. This is the same with kubeadm: kubeadm
// join in poolboot-join.service obtains the certificate, and the unit repeats kubeadm join until the certificate
// exists.
//
// Document builds the assignment of a host: what it should run. It is built when the host boots for the first time, and
// again whenever one of its inputs changes. The same inputs result in the same document, byte for byte, so a host whose
// inputs are unchanged has nothing to do.
//
// A host has what its first assignment contains when Ignition has run: MachineOf returns the machine for the overlay of
// the first boot from the same input, and the assignment contains the part of it that outlives the join. Agents find
// this first assignment in the Secret that was stored before the host got its overlay. So a controller that takes over
// a host that has joined starts with the document in that Secret, and not with a newly built one.
package join
