// Package rootfs tests the script that builds the root file system of the test hosts.
package rootfs
