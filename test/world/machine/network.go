package machine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Gateway and Gateway6 are the addresses of this machine in a Network.
const (
	Gateway  = "198.19.254.1"
	Gateway6 = "2001:db8:fe::1"
)

// Network is a network of a machine in which nothing but this machine answers: it has no DHCP server. It requires root.
type Network struct {
	// MACs are the MAC addresses of the machine's interfaces. All are connected to one switch.
	MACs []string
	// VLAN is the tag of all packets. 0: none.
	VLAN uint16

	metadataFrames atomic.Int64
}

// MetadataFrames returns how many frames the machine has sent to OpenStack's metadata service.
func (n *Network) MetadataFrames() int64 { return n.metadataFrames.Load() }

// link is a Network of a machine that is on.
type link struct {
	network    *Network
	tap        *os.File // this machine's interface
	interfaces []*net.UnixConn
	machines   []*net.UnixAddr // the other end of the interfaces
}

// connect connects this machine with a network, and returns the options of QEMU that connect the machine. The link
// ends with close.
func (n *Network) connect(ctx context.Context, name string) (_ *link, options []string, err error) {
	l := &link{network: n}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.openTap(ctx); err != nil {
		return nil, nil, fmt.Errorf("connect to the network of the machine as root: %w", err)
	}
	for i, mac := range n.MACs {
		socket := func(end string) *net.UnixAddr {
			return &net.UnixAddr{Net: "unixgram", Name: filepath.Join(os.TempDir(), fmt.Sprintf("machine-%d-%s-%d.%s", os.Getpid(), name, i, end))}
		}
		here, there := socket("switch"), socket("machine")
		connection, err := net.ListenUnixgram("unixgram", here)
		if err != nil {
			return nil, nil, err
		}
		l.interfaces, l.machines = append(l.interfaces, connection), append(l.machines, there)
		options = append(options,
			"-netdev", fmt.Sprintf("dgram,id=net%d,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", i, there.Name, here.Name),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s,romfile=", i, mac))
		go l.fromMachine(connection)
	}
	go l.toMachine()
	return l, options, nil
}

// openTap adds an interface with the addresses Gateway and Gateway6 to this machine.
func (l *link) openTap(ctx context.Context) error {
	const name = "machine0"
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	l.tap = os.NewFile(uintptr(fd), name)
	if err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"address", "add", Gateway + "/24", "dev", name}, {"address", "add", Gateway6 + "/64", "dev", name, "nodad"}, {"link", "set", name, "up"},
	} {
		if output, err := exec.CommandContext(ctx, "ip", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", arguments[0], err, output)
		}
	}
	return nil
}

// close ends a link, or nothing.
func (l *link) close() {
	if l == nil {
		return
	}
	if l.tap != nil {
		_ = l.tap.Close()
	}
	for i, connection := range l.interfaces {
		_ = connection.Close()
		_ = os.Remove(l.machines[i].Name)
	}
}

// ethernetAddresses is the size of the two addresses at the beginning of a frame, which a tag follows.
const ethernetAddresses = 12

// toMachine sends what this machine sends to every interface of the machine.
func (l *link) toMachine() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.tap.Read(buffer)
		if err != nil {
			return
		}
		frame := buffer[:n]
		if l.network.VLAN != 0 && n > ethernetAddresses {
			frame = slices.Insert(bytes.Clone(frame), ethernetAddresses, l.tag()...)
		}
		for i, connection := range l.interfaces {
			_, _ = connection.WriteToUnix(frame, l.machines[i]) // as a switch, it drops frames
		}
	}
}

// fromMachine receives what the machine sends from one interface.
func (l *link) fromMachine(connection *net.UnixConn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return
		}
		frame := buffer[:n]
		if l.network.VLAN != 0 {
			addresses, rest, found := bytes.Cut(frame, l.tag())
			if !found || len(addresses) != ethernetAddresses {
				continue
			}
			frame = slices.Concat(addresses, rest)
		}
		if isForMetadata(frame) {
			l.network.metadataFrames.Add(1)
		}
		_, _ = l.tap.Write(frame)
	}
}

// isForMetadata reports whether an untagged frame is for the metadata service, or for its neighbor discovery.
func isForMetadata(frame []byte) bool {
	const header, destination = ethernetAddresses + 2, 16 // the second is that of IPv4, in its header
	if len(frame) < header+destination+net.IPv4len {
		return false
	}
	packet := frame[header:]
	switch binary.BigEndian.Uint16(frame[ethernetAddresses:]) {
	case unix.ETH_P_IP:
		return net.IP(packet[destination : destination+net.IPv4len]).Equal(net.IPv4(169, 254, 169, 254))
	case unix.ETH_P_IPV6:
		return bytes.Contains(packet, net.ParseIP("fe80::a9fe:a9fe"))
	}
	return false
}

// tag returns the tag of IEEE 802.1Q.
func (l *link) tag() []byte {
	return binary.BigEndian.AppendUint16([]byte{0x81, 0x00}, l.network.VLAN)
}
