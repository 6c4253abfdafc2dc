// Package accounts creates, changes and removes the users and groups of a running host with the programs of the host
// (shadow-utils), as Ignition does in the first boot. SSH keys are files of package hostfiles.
//
// It removes only what Poolboot or Ignition created, and gives users and groups of the image back what they had. Users
// are removed without their files. Password hashes are never arguments of programs, which every user of the host can
// see, and never part of errors.
package accounts
