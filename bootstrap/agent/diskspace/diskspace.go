// Package diskspace keeps downloads from filling the file systems of a host.
package diskspace

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Reserve is what stays free on a file system, in bytes, or a tenth of its size if that is less.
const Reserve = 1 << 30

// interval is the time between two looks at a file system that a program writes to.
const interval = time.Second

// Host is a host with its file systems.
type Host struct {
	// Root is the root directory of the host.
	Root string
	// Stat returns how many bytes of the file system of a directory are free, and how many it has. Nil is Stat.
	Stat func(directory string) (free, total int64, err error)
}

// NoRoomError means that a file system has not enough room.
type NoRoomError struct {
	// Mount is where the file system is mounted.
	Mount string
	// Free are the bytes that it has left, Needed those that are needed, and Stays those that stay free.
	Free, Needed, Stays int64
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the file system at %s has %d bytes left, and needs %d besides the %d that stay free: make room on the host", e.Mount, e.Free, e.Needed, e.Stays)
}

// Check returns a *NoRoomError if the file system of a directory has no room for a number of bytes.
func (h Host) Check(directory string, size int64) error {
	stat := h.Stat
	if stat == nil {
		stat = Stat
	}
	free, total, err := stat(filepath.Join(h.Root, directory))
	if err != nil {
		return fmt.Errorf("find out how much room %s has: %w", directory, err)
	}
	if stays := min(Reserve, total/10); free-size < stays {
		return &NoRoomError{h.mountOf(directory), free, size, stays}
	}
	return nil
}

// Guard runs what writes to a directory, and ends it before the file system is full. The error is a *NoRoomError then.
func (h Host) Guard(ctx context.Context, directory string, write func(context.Context) error) error {
	if err := h.Check(directory, 0); err != nil {
		return err
	}
	work, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		looks := time.NewTicker(interval)
		defer looks.Stop()
		for {
			select {
			case <-work.Done():
				return
			case <-looks.C:
				if err := h.Check(directory, 0); err != nil {
					stop(err)
				}
			}
		}
	}()
	err := write(work)
	cause := context.Cause(work)
	stop(nil)
	<-watched
	if err != nil && cause != nil {
		return cause
	}
	return err
}

// Stat returns how many bytes of the file system of a directory are free, and how many it has.
func Stat(directory string) (free, total int64, err error) {
	var stat unix.Statfs_t
	err = unix.Statfs(directory, &stat)
	return int64(stat.Bavail) * stat.Bsize, int64(stat.Blocks) * stat.Bsize, err
}

// mountOf returns where the file system of a directory is mounted.
func (h Host) mountOf(directory string) string {
	device := func(name string) (id uint64) {
		var stat unix.Stat_t
		if unix.Stat(filepath.Join(h.Root, name), &stat) == nil {
			id = stat.Dev
		}
		return id
	}
	for directory != "/" && device(path.Dir(directory)) == device(directory) {
		directory = path.Dir(directory)
	}
	return directory
}
