package systemd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// watchInterval is the interval of polling, which replaces inotify.
const watchInterval = 100 * time.Millisecond

// triggers returns the unit that a path unit starts.
func (u *Unit) triggers() string {
	return u.last("Path", "Unit", strings.TrimSuffix(u.Name, ".path")+".service")
}

// watched returns the paths that start the unit.
func (u *Unit) watched() ([]string, error) {
	paths := u.list("Path", "PathExists")
	for _, path := range paths {
		if !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("unit %s: [Path] PathExists=%s: not an absolute path", u.Name, path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("unit %s: [Path] PathExists= is missing", u.Name)
	}
	return paths, nil
}

// watch starts the path unit's service when a path exists and the service does not run, until the service fails.
func (m *Manager) watch(j *job) {
	target := m.units[j.unit.triggers()]
	if target == nil {
		m.report(j, Failed, &NotFoundError{Name: j.unit.triggers()})
		return
	}
	holds, err := j.unit.conditionsHold(m.Root)
	if err != nil {
		m.report(j, Failed, err)
		return
	}
	if !holds {
		m.report(j, Skipped, nil)
		return
	}
	paths, err := j.unit.watched()
	if err != nil {
		m.report(j, Failed, err)
		return
	}
	m.report(j, Active, nil)
	for m.ctx.Err() == nil && !target.failed() {
		target.waitUntilInactive()
		err := wait.PollUntilContextCancel(m.ctx, watchInterval, true, func(context.Context) (bool, error) {
			return anyExists(m.Root, paths)
		})
		if err != nil {
			m.report(j, Failed, err)
			return
		}
		if !m.awaitRequirements(target) {
			return
		}
		m.start(target)
	}
}

func anyExists(root string, paths []string) (bool, error) {
	for _, path := range paths {
		if there, err := exists(root, path); there || err != nil {
			return there, err
		}
	}
	return false, nil
}
