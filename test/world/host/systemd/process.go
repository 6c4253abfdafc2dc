package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// runAll runs commands one after the other until one fails.
func (m *Manager) runAll(ctx context.Context, u *Unit, commands []command, env map[string]string) error {
	for _, c := range commands {
		argv, err := expand(c.words, env)
		if err != nil {
			return fmt.Errorf("unit %s: %w", u.Name, err)
		}
		err = m.Run(m.Command(ctx, u.Name, argv, environ(env)), func() {})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !c.mayFail {
			return fmt.Errorf("unit %s: %s: %w", u.Name, argv[0], err)
		}
	}
	return nil
}

// launch starts the main process of a service and waits until it has started, or until starting is done. With
// Type=notify it has started when it sends READY=1, otherwise when the program runs. The process runs until ctx is
// done. Its result is sent to the channel.
func (m *Manager) launch(ctx, starting context.Context, u *Unit, s *service, env map[string]string) (<-chan error, error) {
	argv, err := expand(s.main[0].words, env)
	if err != nil {
		return nil, fmt.Errorf("unit %s: %w", u.Name, err)
	}
	environment := environ(env)
	ready := make(chan struct{})
	onStart := func() {
		m.Started(u.Name, argv)
		if s.kind != "notify" {
			close(ready)
		}
	}
	if s.kind == "notify" {
		path := filepath.Join("/run/systemd/notify", u.Name)
		socket, err := listenNotify(filepath.Join(m.Root, path))
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", u.Name, err)
		}
		context.AfterFunc(ctx, func() { _ = socket.Close() })
		go awaitReady(socket, ready)
		environment = append(environment, "NOTIFY_SOCKET="+path)
	}
	ended := make(chan error, 1)
	m.tasks.Go(func() {
		err := m.Run(m.Command(ctx, u.Name, argv, environment), onStart)
		if err != nil {
			err = fmt.Errorf("unit %s: %s: %w", u.Name, argv[0], err)
		}
		ended <- err
	})
	select {
	case <-ready:
		return ended, nil
	case err := <-ended:
		if err == nil {
			err = fmt.Errorf("unit %s: %s ended before it was ready", u.Name, argv[0])
		}
		return nil, err
	case <-starting.Done():
		return ended, context.Cause(starting)
	}
}

// listenNotify creates the socket on which a service reports that it is ready. A socket's address has at most 108
// bytes, therefore its directory is a file descriptor.
func listenNotify(path string) (*net.UnixConn, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
}

// awaitReady closes ready at the first READY=1. It returns when the socket is closed.
func awaitReady(socket *net.UnixConn, ready chan<- struct{}) {
	buffer := make([]byte, 4096)
	said := false
	for {
		n, err := socket.Read(buffer)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(buffer[:n])) {
			if strings.TrimSpace(line) == "READY=1" && !said {
				said = true
				close(ready)
			}
		}
	}
}
