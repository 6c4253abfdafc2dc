package loopback

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken below those that Linux gives to whoever asks for any port and to outgoing connections (from 32768 on,
// see ip_local_port_range): one of these could go to such a one before the program starts that it is for, or while that
// restarts.
const (
	lowestPort  = 15000
	highestPort = 31999
	portTries   = 1000
)

// reserved are what keeps ports from other processes: the kernel gives them back when this one ends, however it does.
var reserved struct {
	sync.Mutex
	ports []net.Listener
}

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on, and that no other caller of FreePort gets while this
// process lives, in whatever process. A program that asks nobody may still take it.
func FreePort() (int, error) {
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		// A name that starts with @ is no file's. As with ports, one process at a time can have it.
		reservation, err := net.Listen("unix", "@poolboot-test-port-"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", Address(port))
		if err != nil {
			_ = reservation.Close()
			continue
		}
		reserved.Lock()
		reserved.ports = append(reserved.ports, reservation)
		reserved.Unlock()
		return port, listener.Close()
	}
	return 0, errors.New("no port of 127.0.0.1 is free between " + strconv.Itoa(lowestPort) + " and " + strconv.Itoa(highestPort))
}

// Address returns 127.0.0.1:port.
func Address(port int) string { return net.JoinHostPort(Host, strconv.Itoa(port)) }
