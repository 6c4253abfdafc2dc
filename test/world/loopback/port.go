package loopback

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below the range that Linux uses for ephemeral ports and outgoing connections (from 32768, see
// ip_local_port_range). Otherwise the kernel could assign a port before its program starts, or while it restarts.
const (
	lowestPort  = 15000
	highestPort = 31999
	portTries   = 1000
)

// reserved has the listeners that reserve ports for this process. The kernel closes them when the process exits.
var reserved struct {
	sync.Mutex
	ports []net.Listener
}

// FreePort returns a free TCP port of 127.0.0.1. No other caller of FreePort, in any process, gets it while this
// process runs. Programs that do not use FreePort can still listen on it.
func FreePort() (int, error) {
	for range portTries {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		// A name that starts with @ is an abstract socket, without a file. Only one process can listen on it.
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
