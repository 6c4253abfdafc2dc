// Package hostfiles changes the files of a host to those of another configuration, in one transaction: after a crash or
// a power failure at any point, the host has all files of the old configuration or all files of the new one.
//
// An update prepares every new file and a hard link to every old one in a directory of its own on the same file system
// (a slot), and syncs them to the disk. Only then does it write the journal record that commits it. What remains are
// renames, which need no space and can be repeated or reversed. So until the commit, an update is undone by deleting
// its slots, and nothing was touched. After the commit, it is completed or undone, as the caller chooses. Until the
// caller confirms the update, it can be undone, also after a reboot.
//
// A file of the image that a configuration replaces keeps its inode, with contents, mode, owner and extended
// attributes, in a slot. It returns when the configuration does not contain the path any more. Files that Poolboot did
// not write are never deleted, and directories are removed only if Poolboot created them and they are empty.
//
// # Files of the image that Ignition replaced
//
// No slot has what Ignition overwrote when it installed the host. It returns from /usr/etc if the image keeps a copy
// there. If that copy does not have the path, or the entry did not overwrite, the path is removed. Otherwise nobody
// knows: an update that removes the entry is refused, with the path and what to do. If it is
// forced, the file that the configuration wrote stays, and is no longer managed.
//
// # Where the state is
//
// The journal, the lock and the slots are in the state directory, which only root can enter. For a path on another
// mount, the slots are in the directory .poolboot at the top of that mount, or of the first directory of the path on
// it. The journal has no contents of files, only their hashes.
//
// # Symbolic links
//
// A symbolic link in a parent directory is followed as Ignition does: within the root, also if it is absolute. Where a
// path leads is recorded when Poolboot first writes it. If it leads elsewhere later, because a link was placed on the
// way, nothing is written, and the path is reported. A link at the path itself is replaced and never followed.
//
// # Crashes while files are changed by hand
//
// The check for changes by hand happens before an update. What is written to a path of the update between a crash and
// Complete is overwritten.
package hostfiles
