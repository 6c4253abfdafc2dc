package baremetal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Address returns the host's IP address.
func (h *Host) Address() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := firstHost + h.number
	if h.moved {
		number += networkSize / 2
	}
	return h.rack.address(number)
}

// ChangeAddress gives the host another IP address from its next boot on, as a DHCP server does that has forgotten the
// host. The second change gives it the first address back.
func (h *Host) ChangeAddress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moved = !h.moved
}

// Unplug disconnects the host's cable from the switch, until PlugIn.
func (h *Host) Unplug(ctx context.Context) error { return h.setCable(ctx, true) }

// PlugIn connects the host's cable with the switch again.
func (h *Host) PlugIn(ctx context.Context) error { return h.setCable(ctx, false) }

func (h *Host) setCable(ctx context.Context, unplugged bool) error {
	h.cable.Lock()
	defer h.cable.Unlock()
	h.unplugged = unplugged
	h.mu.Lock()
	port := h.port(h.boots)
	h.mu.Unlock()
	return ignoreNoPort(h.rack.inSwitch(ctx, "link set "+port+h.cableState()))
}

// cableState returns the state of the host's port for the command ip. The caller holds the lock cable.
func (h *Host) cableState() string {
	if h.unplugged {
		return " down"
	}
	return " up"
}

// port returns the name of the switch's port for a boot of the host.
func (h *Host) port(boot int) string {
	return "port" + strconv.Itoa(h.number) + "." + strconv.Itoa(boot)
}

// connect connects the network card of a boot's first process with the switch, and reports it to that process.
func (h *Host) connect(ctx context.Context, pid, boot int, stdin io.WriteCloser) error {
	h.cable.Lock()
	defer h.cable.Unlock()
	err := h.rack.inSwitch(ctx, fmt.Sprintf("link add %s type veth peer name eth0 address 52:54:00:%02x:%02x:%02x netns %d", h.port(boot),
		h.rack.number, h.number>>8, h.number&0xff, pid), "link set "+h.port(boot)+" master switch"+h.cableState())
	if err == nil {
		_, err = io.WriteString(stdin, "\n")
	}
	return errors.Join(err, stdin.Close())
}

// disconnect removes the port of a boot, which the kernel does too, but later.
func (h *Host) disconnect(ctx context.Context, boot int) error {
	return ignoreNoPort(h.rack.inSwitch(context.WithoutCancel(ctx), "link del "+h.port(boot)))
}

func ignoreNoPort(err error) error {
	if err != nil && strings.Contains(err.Error(), "Cannot find device") {
		return nil
	}
	return err
}
