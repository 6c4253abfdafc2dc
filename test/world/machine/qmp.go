package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// command sends a command to QEMU's machine protocol and waits for its result.
func (m *Machine) command(ctx context.Context, name string) error {
	p := m.current()
	if p == nil {
		return m.errorf("%s: it is off", name)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", p.socket)
	if err != nil {
		return m.errorf("%s: %w", name, err)
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	answers := json.NewDecoder(connection)
	if err := errors.Join(execute(connection, answers, "qmp_capabilities"), execute(connection, answers, name)); err != nil {
		return m.errorf("%s: %w", name, err)
	}
	return nil
}

func execute(connection net.Conn, answers *json.Decoder, name string) error {
	if _, err := fmt.Fprintf(connection, `{"execute":%q}`, name); err != nil {
		return err
	}
	for {
		var answer struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := answers.Decode(&answer); err != nil {
			return err
		}
		switch { // others are the greeting and events
		case answer.Error != nil:
			return errors.New(answer.Error.Desc)
		case answer.Return != nil:
			return nil
		}
	}
}

func killedWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
