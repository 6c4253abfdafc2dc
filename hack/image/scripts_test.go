package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// initramfs is a directory in which scripts of the initramfs run with fake programs.
type initramfs struct {
	t           *testing.T
	dir         string
	environment []string
}

// newInitramfs returns an initramfs in which every file system that is mounted is the directory media.
func newInitramfs(t *testing.T) *initramfs {
	i := &initramfs{t: t, dir: t.TempDir()}
	i.environment = append(os.Environ(), "PATH="+i.path("bin")+":"+os.Getenv("PATH"), "TMPDIR="+i.path("tmp"), "MEDIA="+i.path("media"), "CALLS="+i.path("calls"))
	if err := os.Mkdir(i.path("tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	i.program("mount", `for dir; do :; done; rmdir "$dir" && ln -s "$MEDIA" "$dir"`)
	i.program("umount", `rm "$1" && mkdir "$1"`)
	return i
}

func (i *initramfs) path(name string) string { return filepath.Join(i.dir, name) }

func (i *initramfs) write(name, text string) {
	i.t.Helper()
	if err := os.MkdirAll(filepath.Dir(i.path(name)), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(i.path(name), []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

func (i *initramfs) program(name, script string) {
	i.t.Helper()
	i.write("bin/"+name, "#!/bin/bash\n"+script+"\n")
	if err := os.Chmod(i.path("bin/"+name), 0o755); err != nil {
		i.t.Fatal(err)
	}
}

func (i *initramfs) read(name string) string {
	i.t.Helper()
	text, err := os.ReadFile(i.path(name))
	if err != nil {
		i.t.Fatal(err)
	}
	return string(text)
}

func (i *initramfs) exists(name string) bool {
	_, err := os.Lstat(i.path(name))
	return err == nil
}

// run runs a script with the shell of the initramfs, and returns its output.
func (i *initramfs) run(script string, arguments ...string) (string, error) {
	i.t.Helper()
	path, err := filepath.Abs(filepath.Join("dracut", script))
	if err != nil {
		i.t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil { // go test also records that the result depends on this file
		i.t.Fatal(err)
	}
	command := exec.Command("/bin/sh", append([]string{path}, arguments...)...)
	command.Env = i.environment
	output, err := command.CombinedOutput()
	if left, _ := filepath.Glob(i.path("tmp/*")); len(left) > 0 {
		i.t.Errorf("left: %v", left)
	}
	return string(output), err
}
