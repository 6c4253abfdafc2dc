package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Enablement enables and disables units for the next start of what they are enabled in, such as multi-user.target. It
// changes only links in files: it neither starts nor stops a unit, and systemd does not read its units again.
type Enablement struct {
	Runner command.Runner
	// Links returns the symbolic links of the configuration that is on the host now, by absolute path, with their
	// targets. systemctl also removes those of them that lead to a unit which it disables: they are restored. It can be
	// nil; hostfiles.Updater.Links returns them.
	Links func() map[string]string
}

// Prepare records how the units of an update are now, before any part of the update is carried out. Without it, an
// operation that is undone but was not carried out can't be told from one of a unit that Ignition enabled or disabled.
func (e Enablement) Prepare(ctx context.Context, operations []update.Operation) error {
	_, err := e.remember(ctx, operations)
	return err
}

// Apply carries out an operation of kind update.ChangeEnablement. It can be repeated and undone. Units that can't be
// enabled are skipped, as in the first boot of a host: those without a file or without a section Install, masked ones,
// and other names of units.
//
// In the state update.Preset, a unit is as it was before Poolboot changed it for the first time. If that is not known,
// because it was changed when the host was installed, the presets of the operating system decide.
//
// The links of a unit are those of the section Install of the file that it has then. If a file of the configuration
// replaced one of the image with another section, links of the image's section are not restored.
func (e Enablement) Apply(ctx context.Context, operation update.Operation) error {
	originals, err := e.remember(ctx, []update.Operation{operation})
	if err != nil {
		return err
	}
	err = e.change(ctx, operation.Name, operation.After.Enablement, originals[operation.Name])
	if err = errors.Join(err, e.restoreLinks(), durable.SyncFileSystem(e.path("/etc"))); err != nil {
		return fmt.Errorf("unit %s: %w", operation.Name, err)
	}
	release(originals, operation)
	return e.writeOriginals(originals)
}

// change brings a unit to a state.
func (e Enablement) change(ctx context.Context, unit string, to update.Enablement, original original) error {
	state, err := e.state(ctx, unit)
	if err != nil {
		return err
	}
	if state != unreadable && !canBeEnabled(state) {
		return nil
	}
	verb := ""
	switch to {
	case update.Enabled:
		verb = "enable"
	case update.Disabled:
		verb = "disable"
	case update.Preset:
		if verb, err = e.restoring(unit, original); err != nil {
			return err
		}
		if state == unreadable && verb != "disable" {
			return nil // Poolboot could not change it, and nobody can enable it
		}
	default:
		return fmt.Errorf("enablement %q is unknown: update the agent", to)
	}
	return e.run(ctx, verb, unit)
}

// restoring returns the verb that brings a unit to the state that it has without Poolboot.
func (e Enablement) restoring(unit string, original original) (string, error) {
	switch original.State {
	case enabled:
		return "enable", nil
	case disabled:
		return "disable", nil
	}
	presets, err := os.ReadFile(e.path(hosttree.PresetPath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if enables(string(presets), unit) {
		return "disable", nil // the new unit is undone, and its files are still there
	}
	return "preset", nil
}

// enables reports whether a preset file has a line that enables a unit, as hosttree.Presets writes it.
func enables(presets, unit string) bool {
	name, instance := unit, ""
	if at, dot := strings.Index(unit, "@"), strings.LastIndex(unit, "."); at >= 0 && dot > at+1 {
		name, instance = unit[:at+1]+unit[dot:], unit[at+1:dot]
	}
	for line := range strings.Lines(presets) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "enable" && fields[1] == name && (instance == "" || slices.Contains(fields[2:], instance)) {
			return true
		}
	}
	return false
}

// States of units that the package depends on. The program has more.
const (
	enabled  = "enabled"
	disabled = "disabled"
)

// unreadable is the state of a unit whose file systemctl can't read, such as one with a name that is not valid in its
// section Install. No other unit has it.
const unreadable = "unreadable"

const (
	// noSuchFile is the end of the message about a unit that does not exist.
	noSuchFile = "No such file or directory"
	// noState is in every message about one unit that has no state. Its middle differs.
	noState = " unit file state"
)

// canBeEnabled reports whether systemctl enables and disables units in this state.
func canBeEnabled(state string) bool {
	switch state {
	case enabled, disabled, "indirect", "linked", "enabled-runtime", "linked-runtime":
		return true
	}
	return false
}

// state returns whether a unit is enabled, as states does.
func (e Enablement) state(ctx context.Context, unit string) (string, error) {
	states, err := e.states(ctx, []string{unit})
	if err != nil {
		return "", err
	}
	return states[0], nil
}

// states returns whether units are enabled, as systemctl is-enabled does: nothing for a unit that does not exist, and
// unreadable for one whose file systemctl can't read.
func (e Enablement) states(ctx context.Context, units []string) ([]string, error) {
	states := make([]string, 0, len(units))
	for len(states) < len(units) {
		left := units[len(states):]
		output, err := e.Runner.Run(ctx, systemctl, append([]string{"--root=/", "is-enabled", "--"}, left...)...)
		found := strings.Fields(string(output))
		if len(found) > len(left) || len(found) < len(left) && err == nil {
			return nil, fmt.Errorf("systemctl is-enabled does not tell the states of %s", strings.Join(left, " "))
		}
		for _, state := range found {
			if state == "not-found" { // newer versions print it
				state = ""
			}
			states = append(states, state)
		}
		if err == nil || command.ExitCode(err) > 0 && len(found) == len(left) { // it fails for many states
			continue
		}
		// It ends at the first unit that has no state.
		switch text := command.Detail(err); {
		case command.ExitCode(err) > 0 && strings.Contains(text, noSuchFile):
			states = append(states, "")
		case command.ExitCode(err) > 0 && strings.Contains(text, noState):
			states = append(states, unreadable)
		default:
			return nil, err
		}
	}
	return states, nil
}

// run changes links. With a root directory, systemctl changes them itself, as in the first boot, and does not ask
// systemd, which would read all unit files again. What the unit is like then decides, not the exit code: the program
// also fails because of the links of other units, and disables a unit whose file it can't read.
func (e Enablement) run(ctx context.Context, verb, unit string) error {
	_, err := e.Runner.Run(ctx, systemctl, "--root=/", "--quiet", verb, "--", unit)
	if command.ExitCode(err) < 1 || verb == "preset" {
		return err
	}
	state, stateErr := e.state(ctx, unit)
	switch {
	case stateErr != nil, verb == "enable" && state != enabled, verb == "disable" && state == enabled:
		return err
	}
	return nil
}

// restoreLinks creates the links of the configuration that systemctl removed.
func (e Enablement) restoreLinks() error {
	if e.Links == nil {
		return nil
	}
	root, err := os.OpenRoot(e.path("/"))
	if err != nil {
		return err
	}
	defer root.Close()
	links := e.Links()
	for _, link := range slices.Sorted(maps.Keys(links)) {
		if !strings.HasPrefix(link, hosttree.UnitDirectory+"/") {
			continue
		}
		name := strings.TrimPrefix(link, "/")
		if _, err := root.Lstat(name); err == nil {
			continue
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restore the link %s: %w", link, err)
		}
		// systemctl also removes directories of links that are empty.
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fmt.Errorf("restore the link %s: %w", link, err)
		}
		if err := root.Symlink(links[link], name); err != nil {
			return fmt.Errorf("restore the link %s: %w", link, err)
		}
	}
	return nil
}

func (e Enablement) path(name string) string { return filepath.Join("/", e.Runner.Root, name) }
