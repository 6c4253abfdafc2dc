package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// showDir has the output of "systemctl show" for each unit, which the program systemctl of a simulated host prints.
const showDir = "run/systemd/show"

// show writes the properties of a unit that units read.
func (m *Manager) show(u *Unit) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Id=%s\nFragmentPath=%s\n", u.Name, u.fragment)
	for _, line := range u.list("Service", "ExecStart") {
		c, err := u.parseCommand("ExecStart", line)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "ExecStart={ path=%s ; argv[]=%s ; ignore_errors=%s ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n",
			c.words[0], strings.Join(c.words, " "), yesNo(c.mayFail))
	}
	for _, file := range u.list("Service", "EnvironmentFile") {
		path, mayMiss := strings.CutPrefix(file, "-")
		fmt.Fprintf(&text, "EnvironmentFiles=%s (ignore_errors=%s)\n", path, yesNo(mayMiss))
	}
	dir := filepath.Join(m.Root, showDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, u.Name), []byte(text.String()), 0o644)
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
