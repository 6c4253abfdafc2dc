package service

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watcher finds changes of paths by the notifications of the kernel. It watches the directories of the paths, and
// ignores what else is in them. A directory that does not exist is found when it is created.
type watcher struct {
	root   string
	notify *fsnotify.Watcher
	events chan struct{}

	mu    sync.Mutex
	paths []string
	// names are the names that matter in each watched directory, nil if all do.
	names map[string]map[string]bool
}

// newWatcher returns a watcher of a root directory. After an error, it finds nothing.
func newWatcher(root *os.Root) (*watcher, error) {
	w := &watcher{root: root.Name(), events: make(chan struct{}, 1)}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return w, err
	}
	w.notify = notify
	go w.run()
	return w, nil
}

// changed has a value after a path changed.
func (w *watcher) changed() <-chan struct{} { return w.events }

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// watch replaces the paths. All names matter in a directory whose path ends in a slash.
func (w *watcher) watch(paths []string) {
	if w.notify == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths = paths
	w.update()
}

// update watches the directories of the paths that exist now. A directory that can't be watched is left to the hourly
// check: the kernel limits the number of watches.
func (w *watcher) update() {
	names := map[string]map[string]bool{}
	add := func(directory, name string) {
		if all, exists := names[directory]; exists && all == nil {
			return
		}
		if names[directory] == nil {
			names[directory] = map[string]bool{}
		}
		names[directory][name] = true
	}
	isThere := map[string]bool{}
	for _, watched := range w.paths {
		directory, name := filepath.Split(filepath.Join(w.root, watched))
		directory = filepath.Clean(directory)
		if strings.HasSuffix(watched, "/") {
			directory, name = filepath.Join(w.root, watched), ""
		}
		for {
			exists, isKnown := isThere[directory]
			if !isKnown {
				found, err := os.Stat(directory)
				exists = err == nil && found.IsDir()
				isThere[directory] = exists
			}
			if exists || directory == filepath.Dir(directory) {
				break
			}
			directory, name = filepath.Dir(directory), filepath.Base(directory)
		}
		if name == "" {
			names[directory] = nil
			continue
		}
		add(directory, name)
	}
	for directory := range w.names {
		if _, stays := names[directory]; !stays {
			_ = w.notify.Remove(directory)
		}
	}
	for directory := range names {
		_ = w.notify.Add(directory) // again, too: it can be another directory
	}
	w.names = names
}

// run collects changes until the watcher is closed.
func (w *watcher) run() {
	var settled <-chan time.Time
	for {
		select {
		case event, isOpen := <-w.notify.Events:
			if !isOpen {
				return
			}
			if settled == nil && w.matters(event.Name) {
				settled = time.After(settleTime)
			}
		case _, isOpen := <-w.notify.Errors: // such as too many changes at a time
			if !isOpen {
				return
			}
			if settled == nil {
				settled = time.After(settleTime)
			}
		case <-settled:
			settled = nil
			w.mu.Lock()
			w.update()
			w.mu.Unlock()
			select {
			case w.events <- struct{}{}:
			default:
			}
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
