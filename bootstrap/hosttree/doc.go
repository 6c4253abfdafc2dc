// Package hosttree describes what an Ignition configuration writes to the file system of a host: files, directories,
// links, units, drop-ins, presets and SSH keys, each as an Entry by path, as the Ignition program writes them in its
// stage "files". Users and groups themselves, disks and file systems are not part of it.
//
// New returns what a configuration writes to any host, which is enough to compare two configurations. Tree.On adds what
// depends on the host: the IDs of owners, the homes of users, and contents from elsewhere.
//
// The package is pure: it reads no files, and does not import the API, because it is also part of a small program on
// hosts. Package bootstrap/agent/hostfiles writes the entries to a host.
package hosttree
