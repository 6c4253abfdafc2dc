package baremetal

import (
	"os"
	"strconv"
	"strings"
)

// The hosts share the kernel of this machine, and its limit of inotify instances. A host with a kubelet has 16, and the
// usual limit is 128: beyond it, units of systemd and kubelets don't start.
const (
	instancesLimit = "/proc/sys/fs/inotify/max_user_instances"
	minInstances   = 2048
)

// raiseLimits raises the limit of inotify instances if it is lower than hosts need, until this machine restarts. In a
// container that must not change it, the hosts have what there is.
func raiseLimits() {
	raw, err := os.ReadFile(instancesLimit)
	if err != nil {
		return
	}
	if limit, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil && limit < minInstances {
		_ = os.WriteFile(instancesLimit, []byte(strconv.Itoa(minInstances)), 0o644)
	}
}
