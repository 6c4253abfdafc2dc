// Package image tests the scripts in the initramfs of the Debian image for bare-metal hosts.
package image
