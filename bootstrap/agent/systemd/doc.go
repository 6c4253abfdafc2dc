// Package systemd controls the units of a host with systemctl: Manager reloads, restarts and stops them, and Enablement
// enables and disables them.
//
// The package does not decide which units change, and writes no unit files: masks, drop-ins and presets are files of
// package hostfiles. A unit that leaves the configuration must be stopped before its file is removed, because the file
// says how to stop it (Manager.Stop).
package systemd
