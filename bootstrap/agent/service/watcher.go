package service

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
)

// lookInterval is the time between two looks at directories that the kernel does not watch: it limits the number of
// watches, and all programs of root share them. A look at 1,000 files takes some milliseconds.
const lookInterval = 5 * time.Second

// watchTimeout is how long the agent waits until its paths are watched. A system call can hang that enters a file
// system which a user mounts at the same moment: the agent goes on, and checks the host once an hour.
const watchTimeout = 10 * time.Second

// watcher finds changes of paths by the notifications of the kernel. It watches the directories of the paths, and
// ignores what else is in them. A directory that does not exist is found when it is created. It looks at directories
// that can't be watched from time to time, until they can.
type watcher struct {
	root   *os.Root
	log    *slog.Logger
	events chan struct{}
	// wake makes run read notify and unwatched again, and ends it when it is closed.
	wake chan struct{}
	// open and add get notifications of the kernel.
	open func() (*fsnotify.Watcher, error)
	add  func(notify *fsnotify.Watcher, directory string) error
	// settle is how long changes are collected, and interval the time between two looks.
	settle, interval time.Duration

	mu sync.Mutex
	// notify is nil while it can't be opened, and after close.
	notify   *fsnotify.Watcher
	isClosed bool
	paths    []string
	// names are the names that matter in each directory, nil if all do.
	names map[string]map[string]bool
	// unwatched are the directories that can't be watched, as they were seen last.
	unwatched map[string]look
	// isReported is set after the log says that there are some.
	isReported bool
}

// look is what was seen in a directory.
type look struct {
	names map[string]bool
	seen  string
}

func newWatcher(root *os.Root, log *slog.Logger) *watcher {
	w := &watcher{
		root: root, log: log, events: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		open: fsnotify.NewWatcher, add: (*fsnotify.Watcher).Add, settle: settleTime, interval: lookInterval,
	}
	go w.run()
	return w
}

// changed has a value after a path changed.
func (w *watcher) changed() <-chan struct{} { return w.events }

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isClosed = true
	close(w.wake)
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// watch replaces the paths. All names matter in a directory whose path ends in a slash.
func (w *watcher) watch(paths []string) {
	isWatched := make(chan struct{})
	go func() {
		defer close(isWatched)
		w.replace(paths)
	}()
	select {
	case <-isWatched:
	case <-time.After(watchTimeout):
		w.log.Error("the paths of the configuration are not watched, because a file system of the host does not answer: the agent checks them once an hour")
	}
}

func (w *watcher) replace(paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return
	}
	w.paths = paths
	w.update()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// update watches the directories of the paths that exist now.
func (w *watcher) update() {
	lookup, err := hostfiles.NewLookup(w.root)
	if err != nil {
		w.log.Error("the paths of the configuration can't be watched", "error", err)
		return
	}
	defer lookup.Close()
	names := w.directories(lookup)
	var problem error
	if w.notify == nil {
		if w.notify, problem = w.open(); problem != nil {
			w.notify = nil
		}
	}
	unwatched := map[string]look{}
	for directory := range w.names {
		if _, stays := names[directory]; !stays && w.notify != nil {
			_ = w.notify.Remove(directory)
		}
	}
	for directory, matter := range names {
		if w.notify != nil {
			err := w.add(w.notify, directory) // again, too: it can be another directory
			if err == nil {
				continue
			}
			if !errors.Is(err, fs.ErrNotExist) { // it was there a moment ago
				problem = err
			}
		}
		unwatched[directory] = look{matter, w.lookAt(lookup, directory, matter)}
	}
	switch {
	case !w.isReported && problem != nil && len(unwatched) > 0:
		w.isReported = true
		w.log.Warn("the kernel does not report changes of some directories: raise the sysctls fs.inotify.max_user_watches and fs.inotify.max_user_instances. "+
			"Until then, the agent looks at them from time to time", "directories", len(unwatched), "interval", w.interval.String(), "error", problem)
	case w.isReported && len(unwatched) == 0:
		w.isReported = false
		w.log.Info("the kernel reports changes of all directories again")
	}
	w.names, w.unwatched = names, unwatched
}

// lookAt describes what is in a directory: another description means that something changed. The kernel sets the time
// of the last change, and programs can't.
func (w *watcher) lookAt(lookup *hostfiles.Lookup, directory string, names map[string]bool) string {
	var seen strings.Builder
	own, err := lookup.Directory(w.below(directory))
	if err != nil {
		return err.Error()
	}
	fmt.Fprintln(&seen, own.Dev, own.Ino, own.Mode, own.Uid, own.Gid)
	matter := slices.Sorted(maps.Keys(names))
	if names == nil {
		entries, _ := os.ReadDir(directory)
		for _, entry := range entries {
			matter = append(matter, entry.Name())
		}
	}
	for _, name := range matter {
		found, err := lookup.Stat(filepath.Join(w.below(directory), name))
		if err != nil {
			fmt.Fprintln(&seen, name, err)
			continue
		}
		fmt.Fprintln(&seen, name, found.Dev, found.Ino, found.Mode, found.Size, found.Ctim)
	}
	return seen.String()
}

// below returns a path as the host has it.
func (w *watcher) below(name string) string { return "/" + strings.TrimPrefix(name, w.root.Name()) }

// lookAgain reports whether something changed in the directories that are not watched, and tries to watch them again.
func (w *watcher) lookAgain() (isChanged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.unwatched
	if w.isClosed {
		return false
	}
	w.update()
	lookup, err := hostfiles.NewLookup(w.root)
	if err != nil {
		return true
	}
	defer lookup.Close()
	for directory, last := range before {
		isChanged = isChanged || w.lookAt(lookup, directory, last.names) != last.seen
	}
	return isChanged
}

// directories returns the names that matter in the directories of the paths that exist now, nil for all.
func (w *watcher) directories(lookup *hostfiles.Lookup) map[string]map[string]bool {
	names := map[string]map[string]bool{}
	isThere := map[string]bool{}
	for _, watched := range w.paths {
		directory, name := filepath.Split(filepath.Join(w.root.Name(), watched))
		directory = filepath.Clean(directory)
		if strings.HasSuffix(watched, "/") {
			directory, name = filepath.Join(w.root.Name(), watched), ""
		}
		for {
			exists, isKnown := isThere[directory]
			if !isKnown {
				_, err := lookup.Directory(w.below(directory))
				exists = err == nil
				isThere[directory] = exists
			}
			if exists || directory == filepath.Dir(directory) {
				break
			}
			directory, name = filepath.Dir(directory), filepath.Base(directory)
		}
		matter, exists := names[directory]
		switch {
		case name == "":
			names[directory] = nil
		case !exists:
			names[directory] = map[string]bool{name: true}
		case matter != nil:
			matter[name] = true
		}
	}
	return names
}

// run collects changes until the watcher is closed.
func (w *watcher) run() {
	var settled, next <-chan time.Time
	for {
		var events chan fsnotify.Event
		var errs chan error
		w.mu.Lock()
		if w.notify != nil {
			events, errs = w.notify.Events, w.notify.Errors
		}
		if next == nil && len(w.unwatched) > 0 {
			next = time.After(w.interval)
		}
		isClosed, settle := w.isClosed, w.settle
		w.mu.Unlock()
		if isClosed {
			return
		}
		isChanged := false
		select {
		case <-w.wake:
		case event, isOpen := <-events:
			if !isOpen {
				return
			}
			isChanged = w.matters(event.Name)
		case _, isOpen := <-errs: // such as too many changes at a time
			if !isOpen {
				return
			}
			isChanged = true
		case <-next:
			next = nil
			isChanged = w.lookAgain()
		case <-settled:
			settled = nil
			isChanged = w.lookAgain()
			select {
			case w.events <- struct{}{}:
			default:
			}
		}
		if isChanged && settled == nil {
			settled = time.After(settle)
		}
	}
}

// matters reports whether a path is one of those that are watched, or a watched directory.
func (w *watcher) matters(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isDirectory := w.names[name]; isDirectory {
		return true
	}
	names, isWatched := w.names[filepath.Dir(name)]
	return isWatched && (names == nil || names[filepath.Base(name)])
}
