package ignition_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// FuzzGuardWays verifies accepted links together with accepted lines in tmpfiles.d that remove a path: on a real file
// system with the link, neither the path nor a match of its pattern is a file of Poolboot. The same applies to mount
// points in fstab.
func FuzzGuardWays(f *testing.F) {
	f.Add("/opt/l", "/etc/poolboot", "/opt/l/kubelet.env")
	f.Add("/opt/a/l", "../../etc", "/opt/a/l/./poolboot/../hostname")
	f.Add("/opt/l", "/opt/l/a", "/opt/l/l")
	f.Add("/mnt", ".", "/mnt/mnt/etc/hostname")
	f.Add("/opt/l", "/etc", "/opt/*/poolboo?/kubelet.env")
	f.Add("/opt/l", "/etc/poolboot", "/opt/[l-m]/kubelet.env")
	f.Add("/opt/l", "/var/run", "/opt/l/cluster-api/bootstrap-success.complete")
	f.Fuzz(func(t *testing.T, from, to, way string) {
		for _, path := range []string{from, to, way} {
			if len(path) > 60 || !isPlain(path) {
				t.Skip()
			}
		}
		if !strings.HasPrefix(from, "/") || !strings.HasPrefix(way, "/") {
			t.Skip()
		}
		linked := ignition.New()
		linked.Storage.Links = []types.Link{{Node: types.Node{Path: filepath.Clean(from)}, LinkEmbedded1: types.LinkEmbedded1{Target: &to}}}
		if ignition.Validate(linked) != nil || ignition.Guard(linked) != nil {
			t.Skip()
		}
		root := kept(t)
		if !place(root, filepath.Clean(from), to) {
			t.Skip()
		}
		for name, line := range map[string]string{"/etc/tmpfiles.d/a.conf": "r " + way, "/etc/fstab": "tmpfs " + way + " tmpfs"} {
			config := ignition.Merge(linked, parseOrSkip(t, fileWith(name, line)))
			if ignition.Guard(config) != nil {
				continue
			}
			matches := []string{root + way}
			if name != "/etc/fstab" {
				matches, _ = filepath.Glob(root + way)
			}
			for _, match := range matches {
				if at, err := filepath.EvalSymlinks(match); err == nil && isKeptFile(strings.TrimPrefix(at, root)) {
					t.Fatalf("link %s to %s: %q passed, and gets to %s", from, to, line, strings.TrimPrefix(at, root))
				}
			}
		}
	})
}

// keptFiles are some of Poolboot's files.
var keptFiles = []string{"/etc/poolboot/kubelet.env", "/etc/hostname", "/etc/kubernetes/kubelet.yaml", "/etc/kubernetes/pki/ca.crt",
	"/run/cluster-api/bootstrap-success.complete", "/var/lib/kubelet/pki/a", "/etc/systemd/system/kubelet.service.d/10-poolboot.conf", "/etc/kubernetes/kubelet.conf.d/a.conf"}

func isKeptFile(name string) bool { return slices.Contains(keptFiles, name) }

// kept creates a root directory with keptFiles and with the link of the images.
func kept(t *testing.T) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"/opt/a", "/mnt/b", "/var/a"}, keptFiles...) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(root+name), 0o755), os.WriteFile(root+name, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(root+"/run", root+"/var/run"); err != nil {
		t.Fatal(err)
	}
	return root
}

// place creates a link below root, which represents the root directory of a host. It returns false if another file
// exists there, or if .. would lead out of root.
func place(root, from, to string) bool {
	if filepath.IsAbs(to) {
		to = root + to
	}
	if os.MkdirAll(filepath.Dir(root+from), 0o755) != nil || os.Symlink(to, root+from) != nil {
		return false
	}
	at, err := filepath.EvalSymlinks(root + from)
	return errors.Is(err, fs.ErrNotExist) || err != nil || at == root || strings.HasPrefix(at, root+"/")
}

// isPlain reports whether a path has the same meaning for Go, systemd and the C library.
func isPlain(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("/.-_*?[]", c) && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}) && strings.Count(name, "..") < 3 && strings.Count(name, "*")+strings.Count(name, "?")+strings.Count(name, "[") < 4 // a link to / leads to many paths
}

func parseOrSkip(t *testing.T, document string) ignition.Config {
	t.Helper()
	config, err := ignition.Parse([]byte(document))
	if err != nil {
		t.Skip()
	}
	return config
}

// FuzzGuardSpelling verifies that the guard recognizes Poolboot's paths in tmpfiles.d and fstab, and its variables in
// lists, with any quotes and escapes.
func FuzzGuardSpelling(f *testing.F) {
	f.Add(uint64(0), uint8(0))
	f.Add(uint64(0x123456789abcdef), uint8(1))
	f.Add(^uint64(0), uint8(2))
	f.Add(uint64(0xaaaaaaaaaaaaaaaa), uint8(3))
	f.Fuzz(func(t *testing.T, choices uint64, kind uint8) {
		var document string
		switch kind % 3 {
		case 0:
			document = fileWith("/etc/tmpfiles.d/a.conf", "f+! "+spelled("/etc/poolboot/kubelet.env", choices, true)+" 0644 - - - it's")
		case 1:
			document = fileWith("/etc/fstab", "tmpfs "+spelled("/etc/poolboot", choices, false)+" tmpfs")
		default:
			document = dropin("kubelet.service", "[Service]\nUnsetEnvironment=A "+spelled("POOLBOOT_KUBELET_ARGS", choices, true))
		}
		config := parseOrSkip(t, document)
		if ignition.Guard(config) == nil {
			t.Fatalf("%s passed", document)
		}
	})
}

// spelled returns a text with escapes and quotes according to choices: two bits for each character.
func spelled(text string, choices uint64, isSystemd bool) string {
	var out strings.Builder
	for i := range len(text) {
		c := text[i]
		choice := choices >> (2 * (i % 32)) & 3
		switch {
		case choice == 1:
			out.WriteString("\\" + string([]byte{'0' + c>>6, '0' + c>>3&7, '0' + c&7}))
		case choice == 2 && isSystemd:
			const hex = "0123456789abcdef"
			out.WriteString(`\x` + string([]byte{hex[c>>4], hex[c&15]}))
		case choice == 3 && isSystemd:
			out.WriteString(`"` + string(c) + `"`)
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}
