// Package update plans how a running host changes from one configuration of its pool to another: which operations
// change the host (Operation), and what the host does after them, such as reloading a unit or rebooting (Action). If
// the change is not possible on a running host, the plan says why and what to do instead (Obstacle).
//
// The rules are those of OpenShift's Machine Config Operator and its node disruption policies. Where the operator
// refuses a change that is safe and can be undone, the package allows it: directories, links, groups, users. It never
// allows more for disks, file systems, RAID, LUKS and FIPS.
//
// The package is pure: it knows nothing of the host but its Capabilities, does no I/O, and reads no clock. It does not
// import the API: it is also part of a small program on hosts. Package pool reads its inputs from API objects.
package update
