package service

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is that of the host.
type Clock struct{}

// Now returns the time of day.
func (Clock) Now() time.Time { return time.Now() }

// Uptime returns the time since the host booted, including suspension.
func (Clock) Uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // every Linux since 2.6.39 has this clock
	}
	return time.Duration(now.Nano())
}

// BootID returns the ID that the kernel gave to this boot.
func (Clock) BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // without /proc there is no host: then every boot is the same one, and nothing is taken for a reboot
	}
	return strings.TrimSpace(string(id))
}
