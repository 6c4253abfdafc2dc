// Package durable writes files that survive a power loss: afterwards a file has its old contents or its new ones,
// completely. It also encodes journals, so that damage is found.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// newSuffix is that of a file that is being written.
const newSuffix = ".poolboot-new"

// Write replaces a file, and returns when the new contents are on the disk. A file that exists keeps its mode and its
// owner; another one gets the mode. Parent directories are created with mode 0700. What an earlier call left behind
// when the power was lost is overwritten.
func Write(name string, contents []byte, mode fs.FileMode) error {
	directory := filepath.Dir(name)
	if err := mkdirAll(directory); err != nil {
		return err
	}
	uid, gid := -1, -1
	switch old, err := os.Lstat(name); {
	case err == nil && !old.Mode().IsRegular():
		return &fs.PathError{Op: "write", Path: name, Err: errors.New("it is not a regular file: remove it")}
	case err == nil:
		owner := old.Sys().(*syscall.Stat_t)
		mode, uid, gid = old.Mode().Perm(), int(owner.Uid), int(owner.Gid)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	temporary := name + newSuffix
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := create(temporary, contents, mode, uid, gid); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, name); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return syncDirectory(directory)
}

func create(name string, contents []byte, mode fs.FileMode, uid, gid int) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(contents)
	if err == nil {
		err = file.Chown(uid, gid)
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// mkdirAll creates a directory and its parents, and syncs each parent in which it created one.
func mkdirAll(name string) error {
	found, err := os.Stat(name)
	switch {
	case err == nil && found.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(name)
	if err := mkdirAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDirectory(parent)
}

// SyncFileSystem returns when the file system of a path is on the disk.
func SyncFileSystem(name string) error {
	directory, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(directory.Fd()))), directory.Close())
}

func syncDirectory(name string) error {
	directory, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
