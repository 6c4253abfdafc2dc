package baremetal

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// keptLines is the number of console lines in an error.
const keptLines = 12

// console is a terminal that collects what a host prints.
type console struct {
	file *os.File
	log  io.Writer
	name string
	// tty is the terminal of the current boot, and read is closed when all its output has been read. The terminal stays
	// open for the whole boot: systemd closes it and opens it again.
	tty  *os.File
	read chan struct{}

	mu   sync.Mutex // guards last
	last []string
}

func consolePath(options HostOptions) string { return filepath.Join(options.Dir, "console.log") }

func openConsole(options HostOptions) (*console, error) {
	file, err := os.OpenFile(consolePath(options), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &console{file: file, log: options.Log, name: options.Name}, err
}

// Close closes the console's file.
func (c *console) Close() { _ = c.file.Close() }

// open opens a new terminal for a boot.
func (c *console) open() error {
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	fd := int(controller.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		c.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = controller.Close()
		return fmt.Errorf("open a terminal: %w", err)
	}
	c.read = make(chan struct{})
	go c.readLines(controller)
	return nil
}

// drain closes the terminal of a boot whose processes have exited, and waits until its output was read.
func (c *console) drain() {
	_ = c.tty.Close()
	<-c.read
}

// readLines reads lines until the terminal is closed.
func (c *console) readLines(controller *os.File) {
	defer close(c.read)
	defer controller.Close()
	reader := bufio.NewReader(controller)
	for {
		line, err := reader.ReadString('\n')
		if line != "" {
			c.print(strings.TrimRight(line, "\r\n") + "\n")
		}
		if err != nil { // EIO
			return
		}
	}
}

func (c *console) print(line string) {
	_, _ = io.WriteString(c.file, line)
	if c.log != nil {
		_, _ = io.WriteString(c.log, "["+c.name+"] "+line)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, line)
	if len(c.last) > keptLines {
		c.last = slices.Delete(c.last, 0, len(c.last)-keptLines)
	}
}

// lastLines returns the last lines, for errors.
func (c *console) lastLines() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.last, "")
}
