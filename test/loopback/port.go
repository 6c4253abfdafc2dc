package loopback

import (
	"net"
	"strconv"
)

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on. Another program may take it before the caller does:
// who starts a program with it tries again with another port when the program can't bind.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(Host, "0"))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// Address returns 127.0.0.1:port.
func Address(port int) string { return net.JoinHostPort(Host, strconv.Itoa(port)) }
