package rootfs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakes are programs that the script calls, without a mirror and without root.
var fakes = map[string]string{
	"id":      "echo 0",
	"apt-get": `. /etc/os-release; echo "${ID^} /etc/apt/sources.list.d/debian.sources:1"`,
	"unshare": `while [ "$1" != mmdebstrap ]; do shift; done; exec "$@"`,
	"mmdebstrap": `echo "$@" >>"$CALLS"
		for a; do case $a in */root) root=$a;; esac; done
		mkdir -p "$root/usr/lib/systemd/system" "$root/etc" "$root/var/log" "$root/var/cache"
		echo program >"$root/usr/program"
		[ ! -e "$CALLS.interrupt" ] || kill -$(cat "$CALLS.interrupt") $PPID
		[ ! -e "$CALLS.fail" ] || exit 1
		[ ! -e "$CALLS.wait" ] || { read -r _ <"$CALLS.wait"; :; }`,
}

// builder runs a copy of the script with fake programs.
type builder struct {
	t           *testing.T
	script, dir string
	path, calls string
	functions   []byte // of debian.sh
}

func newBuilder(t *testing.T) *builder {
	tmp := t.TempDir()
	b := &builder{t: t, script: filepath.Join(tmp, "rootfs", "rootfs.sh"), dir: filepath.Join(tmp, "built", "rootfs"),
		path: filepath.Join(tmp, "bin"), calls: filepath.Join(tmp, "calls")}
	if err := os.CopyFS(filepath.Dir(b.script), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.script, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.functions, err = os.ReadFile("../debian.sh"); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(tmp, "debian.sh"), string(b.functions), 0o644)
	if err := os.MkdirAll(filepath.Dir(b.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range fakes {
		b.fake(name, text)
	}
	return b
}

func (b *builder) fake(name, text string) {
	b.write(filepath.Join(b.path, name), "#!/bin/bash\n"+text+"\n", 0o755)
}

func (b *builder) write(path, text string, mode os.FileMode) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) run(mode string) (string, error) {
	command := exec.Command(b.script, mode, b.dir)
	command.Env = append(os.Environ(), "PATH="+b.path+":"+os.Getenv("PATH"), "CALLS="+b.calls)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (b *builder) build() {
	b.t.Helper()
	if output, err := b.run("build"); err != nil {
		b.t.Fatalf("%v: %s", err, output)
	}
	if output, err := b.run("check"); err != nil {
		b.t.Fatalf("%v: %s", err, output)
	}
}

// builds returns the number of root file systems that were built.
func (b *builder) builds() int {
	calls, _ := os.ReadFile(b.calls)
	return strings.Count(string(calls), "\n")
}

func TestIsBuiltOnce(t *testing.T) {
	b := newBuilder(t)
	b.build()
	b.build()
	if b.builds() != 1 {
		t.Errorf("it was built %d times", b.builds())
	}
	calls, _ := os.ReadFile(b.calls)
	if !strings.Contains(string(calls), "/etc/apt/sources.list.d/debian.sources") {
		t.Errorf("not from the machine's own sources: %s", calls)
	}
}

// TestUnusableOnesAreDetectedAndRebuilt damages a root file system in a way.
func TestUnusableOnesAreDetectedAndRebuilt(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(b *builder) error
		says   string
	}{
		"no root file system": {func(b *builder) error { return os.RemoveAll(b.dir) }, "is missing"},
		"no manifest":         {func(b *builder) error { return os.Remove(b.dir + "/manifest") }, "is incomplete"},
		"an empty recipe":     {func(b *builder) error { return os.Truncate(b.dir+"/recipe", 0) }, "is incomplete"},
		"a missing program":   {func(b *builder) error { return os.Remove(b.dir + "/root/usr/program") }, "is damaged, for example ./usr/program"},
		"a program with other content of the same size": {func(b *builder) error {
			return os.WriteFile(b.dir+"/root/usr/program", []byte("PROGRAM\n"), 0o600)
		}, "is damaged, for example ./usr/program"},
		"a folder with another mode": {func(b *builder) error { return os.Chmod(b.dir+"/root/usr", 0o700) }, "is damaged, for example ./usr"},
		"a missing folder":           {func(b *builder) error { return os.RemoveAll(b.dir + "/root/usr") }, "is damaged, for example ./usr"},
		"a half-written manifest":    {func(b *builder) error { return truncateToHalf(b.dir + "/manifest") }, "is damaged, for example"},
		"a truncated program":        {func(b *builder) error { return os.Truncate(b.dir+"/root/usr/program", 1) }, "is damaged, for example ./usr/program"},
		"another mode":               {func(b *builder) error { return os.Chmod(b.dir+"/root/usr/program", 0o600) }, "is damaged, for example ./usr/program"},
		"an additional file":         {func(b *builder) error { return os.WriteFile(b.dir+"/root/new", nil, 0o600) }, "is damaged, for example ./new"},
		"changed package list": {func(b *builder) error {
			return os.WriteFile(filepath.Dir(b.script)+"/packages", []byte("systemd\n"), 0o600)
		}, "is outdated"},
		"changed function": {func(b *builder) error {
			return os.WriteFile(filepath.Dir(filepath.Dir(b.script))+"/debian.sh", append([]byte("# changed\n"), b.functions...), 0o600)
		}, "is outdated"},
		"changed file of an image": {func(b *builder) error { return os.Remove(filepath.Dir(b.script) + "/files/etc/hosts") }, "is outdated"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t)
			b.build()
			if err := c.damage(b); err != nil {
				t.Fatal(err)
			}
			output, err := b.run("check")
			if err == nil || !strings.Contains(output, c.says) || !strings.Contains(output, "What to do: run make rootfs") {
				t.Errorf("%v: %s", err, output)
			}
			b.build()
			if b.builds() != 2 {
				t.Errorf("it was built %d times", b.builds())
			}
		})
	}
}

func truncateToHalf(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, int64(len(content)/2))
}

// left returns what is left of builds.
func (b *builder) left() []string {
	b.t.Helper()
	left, err := filepath.Glob(b.dir + ".building.*")
	if err != nil {
		b.t.Fatal(err)
	}
	return left
}

// TestFailedBuildLeavesNothing makes a build fail, which is after a first one whose result is outdated, or not. A later
// build succeeds.
func TestFailedBuildLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		file, content  string
		killed, exists bool
	}{
		"killed":                            {".interrupt", "KILL", true, false},
		"killed, after another build":       {".interrupt", "KILL", true, true},
		"Ctrl-C":                            {".interrupt", "INT", false, false},
		"terminated, after another build":   {".interrupt", "TERM", false, true},
		"a package that can't be installed": {".fail", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t)
			says := "is missing"
			if c.exists {
				b.build()
				says = "is outdated"
				b.write(filepath.Dir(b.script)+"/packages", "systemd\n", 0o600)
			}
			b.write(b.calls+c.file, c.content, 0o600)
			if output, err := b.run("build"); err == nil {
				t.Fatal(output)
			}
			if left := b.left(); len(left) > 0 && !c.killed {
				t.Errorf("left: %v", left)
			}
			if output, err := b.run("check"); err == nil || !strings.Contains(output, says) {
				t.Errorf("%v: %s", err, output)
			}
			if err := os.Remove(b.calls + c.file); err != nil {
				t.Fatal(err)
			}
			b.build()
			if left := b.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestTwoBuildsAtOnceBuildOnce starts a second build while the first one installs packages.
func TestTwoBuildsAtOnceBuildOnce(t *testing.T) {
	b := newBuilder(t)
	if err := syscall.Mkfifo(b.calls+".wait", 0o600); err != nil {
		t.Fatal(err)
	}
	type result struct {
		output string
		err    error
	}
	results := make(chan result)
	for range 2 {
		go func() {
			output, err := b.run("build")
			results <- result{output, err}
		}()
	}
	// Returns when the first build reads: it is installing packages.
	proceed, err := os.OpenFile(b.calls+".wait", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case early := <-results:
		t.Errorf("a build did not wait for the other one: %v: %s", early.err, early.output)
	case <-time.After(100 * time.Millisecond):
	}
	if err := errors.Join(os.Remove(b.calls+".wait"), proceed.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := <-results; r.err != nil {
			t.Errorf("%v: %s", r.err, r.output)
		}
	}
	if b.builds() != 1 {
		t.Errorf("it was built %d times", b.builds())
	}
	if output, err := b.run("check"); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

func TestMessagesSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct{ program, text, says string }{
		"no root":    {"id", "echo 1000", "Only root can build the root file system of the test hosts. What to do: run the same command with sudo"},
		"no sources": {"apt-get", "", "What to do: check /etc/apt/sources.list and /etc/apt/sources.list.d"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t)
			b.fake(c.program, c.text)
			if output, err := b.run("build"); err == nil || !strings.Contains(output, c.says) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}
