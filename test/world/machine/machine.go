// Package machine runs bare-metal machines in QEMU without KVM: firmware, boot loader, kernel and initramfs are real,
// and the machine boots from a disk with an image and a config drive as Metal3 writes them. It is slow, see
// docs/dev/performance.md.
package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// Sizes in MiB.
const (
	diskSize        = 8 << 10
	configDriveSize = 64
	memory          = 2 << 10
)

const sectorsPerMiB = 2048

// Options are the options of a machine.
type Options struct {
	// Image is the path of the image that Deploy writes, in the format qcow2.
	Image string
	// Console gets the console output besides the file console.log. Optional.
	Console io.Writer
	// Firmware boots the disk. Default: BIOS.
	Firmware Firmware
	// ARM64 makes it a machine with arm64 and UEFI.
	ARM64 bool
	// POST is how long the BIOS waits before it boots, as a server that tests its hardware: at most 65 seconds.
	POST time.Duration
	// Network is the network of the machine. Default: QEMU's network, which has a DHCP server.
	Network *Network
	// NetworkData is the network data on the config drive. Optional.
	NetworkData string
	// NTPServer is the address of an NTP server in the configuration of the machine's network. Optional.
	NTPServer string
}

// Firmware is the firmware of a machine.
type Firmware string

// Firmware of a machine, with the names that BareMetalHosts have for their boot mode.
const (
	BIOS Firmware = "legacy"
	UEFI Firmware = "UEFI"
	// SecureBoot has the keys of Microsoft, as servers have.
	SecureBoot Firmware = "UEFISecureBoot"
)

// Machine is a machine with the functions of its BMC. It is safe for concurrent use.
type Machine struct {
	name, dir string
	options   Options

	mu    sync.Mutex // guards the fields below
	now   *power
	clock time.Duration // of the firmware, compared to the right time
}

// New returns a machine that is off, with an empty disk in dir. Its console is in the file console.log in dir.
func New(name, dir string, options Options) (*Machine, error) {
	for program, debianPackage := range map[string]string{
		options.emulator(): map[bool]string{false: "qemu-system-x86", true: "qemu-system-arm"}[options.ARM64],
		"qemu-img":         "qemu-utils", "sfdisk": "fdisk", "genisoimage": "genisoimage",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w. What to do: apt-get install %s", err, debianPackage)
		}
	}
	if _, err := os.Stat(options.Image); err != nil {
		return nil, fmt.Errorf("%w. What to do: run make image", err)
	}
	return &Machine{name: name, dir: dir, options: options}, os.MkdirAll(dir, 0o755)
}

// Deploy writes the image to the disk, and the user data to a partition config-2 at its end. The machine must be off.
func (m *Machine) Deploy(ctx context.Context, userData []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil {
		return m.errorf("the image can't be written while the machine is on")
	}
	drive := filepath.Join(m.dir, "config-drive")
	if err := errors.Join(os.RemoveAll(drive), os.MkdirAll(filepath.Join(drive, "openstack", "latest"), 0o700),
		os.WriteFile(filepath.Join(drive, "openstack", "latest", "user_data"), userData, 0o600)); err != nil {
		return err
	}
	if m.options.NetworkData != "" {
		if err := os.WriteFile(filepath.Join(drive, "openstack", "latest", "network_data.json"), []byte(m.options.NetworkData), 0o600); err != nil {
			return err
		}
	}
	// As Ironic does: after the image is written, the backup of the partition table is at the end of the disk's image.
	start := (diskSize - 1 - configDriveSize) * sectorsPerMiB
	// The lowest number that is free.
	partition := fmt.Sprintf("4: start=%d, size=%d, name=config-2", start, configDriveSize*sectorsPerMiB)
	for _, step := range []struct {
		input string
		argv  []string
	}{
		{"", []string{"genisoimage", "-quiet", "-R", "-V", "config-2", "-o", m.path("config-drive.iso"), drive}},
		{"", []string{"qemu-img", "convert", "-f", "qcow2", "-O", "raw", m.options.Image, m.disk()}},
		{"", []string{"truncate", "--size=" + strconv.Itoa(diskSize) + "M", m.disk()}},
		{"", []string{"sfdisk", "--quiet", "--relocate", "gpt-bak-std", m.disk()}},
		{partition, []string{"sfdisk", "--quiet", "--append", m.disk()}},
		{"", []string{"dd", "if=" + m.path("config-drive.iso"), "of=" + m.disk(), "bs=512", "seek=" + strconv.Itoa(start), "conv=notrunc", "status=none"}},
	} {
		command := exec.CommandContext(ctx, step.argv[0], step.argv[1:]...)
		command.Stdin = strings.NewReader(step.input)
		if output, err := command.CombinedOutput(); err != nil {
			return m.errorf("%s: %w: %s", step.argv[0], err, output)
		}
	}
	return nil
}

// PowerOn boots the machine from its disk. It runs until ctx is done, the power is cut or it powers itself off.
func (m *Machine) PowerOn(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now != nil {
		return m.errorf("it is on already")
	}
	// As for the firmware of most servers, the time zone is UTC.
	clock := time.Now().UTC().Add(m.clock).Format("2006-01-02T15:04:05")
	socket := filepath.Join(os.TempDir(), fmt.Sprintf("machine-%d-%s.sock", os.Getpid(), m.name))
	argv, err := m.firmware(ctx)
	if err != nil {
		return err
	}
	argv = append(argv,
		"-name", m.name, "-rtc", "base="+clock, "-smp", "2", "-m", strconv.Itoa(memory), "-display", "none", "-nodefaults",
		"-drive", "if=none,id=disk,format=raw,cache=unsafe,file="+m.disk(), "-device", "virtio-blk-pci,drive=disk,bootindex=1",
		"-device", "virtio-rng-pci",
		"-serial", "stdio", "-qmp", "unix:"+socket+",server=on,wait=off",
	)
	var network *link
	if m.options.Network == nil {
		argv = append(argv, "-netdev", "user,id=network", "-device", "virtio-net-pci,netdev=network,romfile=")
	} else {
		connected, interfaces, err := m.options.Network.connect(ctx, m.name)
		if err != nil {
			return m.errorf("%w", err)
		}
		network, argv = connected, append(argv, interfaces...)
	}
	if m.options.NTPServer != "" {
		argv = append(argv, "-smbios", "type=11,value="+strings.ReplaceAll(networkWithNTP(m.options.NTPServer), ",", ",,"))
	}
	command := exec.CommandContext(ctx, m.options.emulator(), argv...)
	p, err := m.start(command, socket, network)
	if err != nil {
		network.close()
		return m.errorf("%w", err)
	}
	m.now = p
	return nil
}

// firmware returns the options of QEMU for the machine's firmware, whose variables stay in the machine.
func (m *Machine) firmware(ctx context.Context) ([]string, error) {
	code, variables, options := "OVMF/OVMF_CODE_4M.fd", "OVMF/OVMF_VARS_4M.fd", []string{"-machine", "q35,accel=tcg"}
	switch {
	case m.options.ARM64:
		code, variables = "AAVMF/AAVMF_CODE.fd", "AAVMF/AAVMF_VARS.fd"
		options = []string{"-machine", "virt,accel=tcg", "-cpu", "cortex-a72"}
	case m.options.Firmware == UEFI:
	case m.options.Firmware == SecureBoot:
		code, variables = "OVMF/OVMF_CODE_4M.secboot.fd", "OVMF/OVMF_VARS_4M.ms.fd"
		options = []string{"-machine", "q35,accel=tcg,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"}
	default:
		options := []string{"-machine", "pc,accel=tcg"}
		if m.options.POST > 0 {
			options = append(options, "-boot", fmt.Sprintf("menu=on,splash-time=%d", m.options.POST.Milliseconds()))
		}
		return options, nil
	}
	const directory = "/usr/share/"
	if output, err := exec.CommandContext(ctx, "cp", "--no-clobber", directory+variables, m.path("variables.fd")).CombinedOutput(); err != nil {
		return nil, m.errorf("%w: %s What to do: apt-get install ovmf qemu-efi-aarch64", err, output)
	}
	return append(options, "-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+directory+code,
		"-drive", "if=pflash,unit=1,format=raw,file="+m.path("variables.fd")), nil
}

func (o Options) emulator() string {
	if o.ARM64 {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

// networkWithNTP returns the SMBIOS string from which systemd creates the configuration of a network with an NTP
// server. QEMU's DHCP server cannot offer one.
func networkWithNTP(server string) string {
	return `io.systemd.credential:tmpfiles.extra=f /run/systemd/network/70-ntp.network 0644 - - - ` +
		`[Match]\nType=ether\n[Network]\nDHCP=yes\nNTP=` + server + `\n`
}

// SetClock sets the clock of the firmware to an offset from the right time, from the next power-on on.
func (m *Machine) SetClock(offset time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = offset
}

// Reset resets the machine, as a BMC does.
func (m *Machine) Reset(ctx context.Context) error { return m.command(ctx, "system_reset") }

// PressPowerButton asks the machine to power itself off. Off waits for it.
func (m *Machine) PressPowerButton(ctx context.Context) error {
	return m.command(ctx, "system_powerdown")
}

// PowerCut cuts the power and waits until the machine is off.
func (m *Machine) PowerCut() error {
	if p := m.current(); p != nil {
		_ = p.process.Kill()
		<-p.off
	}
	return nil
}

// Off returns a channel that is closed when the machine is off, or nil if it is off.
func (m *Machine) Off() <-chan struct{} {
	if p := m.current(); p != nil {
		return p.off
	}
	return nil
}

// IsOn reports whether the machine is on.
func (m *Machine) IsOn() bool { return m.current() != nil }

// escapes are the colors and cursor movements of a terminal.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// Console returns what the machine has printed on its serial console in all boots, without colors.
func (m *Machine) Console() (string, error) {
	text, err := os.ReadFile(m.path("console.log"))
	return escapes.ReplaceAllString(string(text), ""), err
}

func (m *Machine) current() *power {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *Machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *Machine) disk() string { return m.path("disk.raw") }

func (m *Machine) errorf(format string, arguments ...any) error {
	return fmt.Errorf("machine %s: %w", m.name, fmt.Errorf(format, arguments...))
}

// power is the time of a machine from power on to power off.
type power struct {
	process *os.Process
	socket  string
	off     chan struct{} // closed when QEMU has exited
}

// start starts QEMU. The caller holds the lock.
func (m *Machine) start(command *exec.Cmd, socket string, network *link) (*power, error) {
	console, err := os.OpenFile(m.path("console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = console, console
	if m.options.Console != nil {
		both := io.MultiWriter(console, m.options.Console)
		command.Stdout, command.Stderr = both, both
	}
	command.SysProcAttr = killedWithParent()
	if err := process.Start(command); err != nil {
		return nil, errors.Join(err, console.Close())
	}
	p := &power{process: command.Process, socket: socket, off: make(chan struct{})}
	go func() {
		_ = command.Wait() // a machine that is powered off exits with 0, and one whose power is cut does not
		_ = console.Close()
		_ = os.Remove(socket)
		network.close()
		m.mu.Lock()
		m.now = nil
		m.mu.Unlock()
		close(p.off)
	}()
	return p, nil
}
