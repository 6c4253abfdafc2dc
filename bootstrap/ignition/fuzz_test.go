package ignition_test

import (
	"bytes"
	"errors"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config"
	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"github.com/vincent-petithory/dataurl"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
)

// FuzzParse verifies that Ignition accepts what Parse accepts, that the written bytes do not change when they are
// parsed again, and that an error is a ParseError with a message. For spec 3, Parse returns the same as Ignition's own
// parser.
func FuzzParse(f *testing.F) {
	f.Add([]byte(infratest))
	f.Add([]byte(`{"ignition":{"version":"3.0.0"},"storage":{"files":[{"path":"/a","mode":"0644"}]}}`))
	f.Add([]byte(`{"ignition":{"version":"2.4.0"},"storage":{"links":[{"path":"a","filesystem":"data"}]}}`))
	f.Add([]byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/a"},{"path":"/a"}]},"ignition":{"version":"3.2.0"}}`))
	f.Add([]byte(whole))
	f.Add([]byte("{\"ignition\":{\"version\":\"3.5.0\"},\n\"systemd\":{\"units\":[{\"name\":\"a\"},[]]}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, err := ignition.Parse(raw)
		if theirs, _, theirErr := v3_5.ParseCompatibleVersion(raw); theirErr == nil && !reflect.DeepEqual(read, theirs) {
			t.Fatalf("%+v (%v), and Ignition reads %+v", read, err, theirs)
		}
		if err != nil {
			expectParseError(t, err)
			return
		}
		expectStable(t, read)
	})
}

// FuzzContents verifies that Contents reads from any source what Ignition reads, and that Validate accepts a file if
// Ignition does.
func FuzzContents(f *testing.F) {
	for _, source := range []string{
		"data:,", "data:", "data:,a%20b", "data:,a b", "data:,a?b#c", "data:,%", "data:,%zz", "data:,+&=;,", "data:,\u00e4", "data:text/plain,a",
		"data:text/plain;charset=utf-8;base64,YQ==", "data:;base64,YQ", "data:;base64,YQ==YQ==", "data:;base64,YQ\n==", "data:;base64,YR==",
		"data:;base64,YQ\r==", "data:;base64,,", "data:base64,YQ==", "Data:,a", "http://a", "data:a/b;c=d,e", "data://,a", "data:/,a",
	} {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		c := ignition.New()
		c.Storage.Files = []types.File{{Node: types.Node{Path: "/a"}, FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: &source}}}}
		if fatal := validate.ValidateWithContext(c, nil).IsFatal(); fatal != (ignition.Validate(c) != nil) {
			t.Fatalf("%q is refused by Ignition: %t, and by Validate: %t", source, fatal, !fatal)
		}
		have, err := ignition.Contents(c.Storage.Files[0].Contents, 1<<20)
		parsed, parseErr := url.Parse(source)
		if parseErr != nil || parsed.Scheme != "data" {
			if source != "" && err == nil {
				t.Fatalf("%q holds %q", source, have)
			}
			return
		}
		want, wantErr := dataurl.DecodeString(parsed.String())
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(have, want.Data) {
			t.Fatalf("%q holds %q (%v), and Ignition reads %v (%v)", source, have, err, want, wantErr)
		}
	})
}

// FuzzUnit verifies that Validate accepts the contents of a unit if Ignition does.
func FuzzUnit(f *testing.F) {
	for _, contents := range []string{
		"[Unit]\nA=b\n", "[Unit", "[Unit] a", "[Unit]\n[a]b]\n", "[Unit]\na", "[Unit]\na=\\", "[Unit]\na=\\ \n", "[Unit]\n# a\\\nb\n", "[Unit]\n=b",
		"[Unit]\ra", "a\n[Unit]\n", "[Unit]\n;a\n\n \n b=c", "[Unit]\na=" + strings.Repeat("b", 2050), "[Unit]\n\u00a0a=b", "[Unit]\n\xff=b", "[]\n",
	} {
		f.Add(contents)
	}
	f.Fuzz(func(t *testing.T, contents string) {
		c := ignition.New()
		c.Systemd.Units = []types.Unit{{Name: "a.service", Contents: &contents, Dropins: []types.Dropin{{Name: "a.conf", Contents: &contents}}}}
		if fatal := validate.ValidateWithContext(c, nil).IsFatal(); fatal != (ignition.Validate(c) != nil) {
			t.Fatalf("%q is refused by Ignition: %t, and by Validate: %t", contents, fatal, !fatal)
		}
	})
}

// FuzzButane verifies for Butane what FuzzParse verifies for Ignition.
func FuzzButane(f *testing.F) {
	f.Add("variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/motd\n    contents: {inline: hi}\n")
	f.Add("variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/motd\n    contents: {local: hi}\n")
	f.Add("variant: openshift\nversion: 4.14.0\n")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := butane.Parse(text)
		if err != nil {
			expectParseError(t, err)
			return
		}
		expectStable(t, read)
	})
}

// FuzzMerge verifies that merging never fails, that merging all at once equals merging one after the other, and that
// the later contents of a file are unchanged.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(infratest), []byte(infratest), []byte(storage("links", `{"path":"/etc/infratest","target":"/a"}`)))
	f.Add([]byte(file(`"contents":{"compression":"gzip","source":"data:;base64,H4sI"}`)), []byte(file(`"mode":384`)),
		[]byte(file(`"overwrite":false,"contents":{"source":"data:,b"}`)))
	f.Add([]byte(unit(`{"name":"a.service","contents":"[Unit]"}`)), []byte(unit(`{"name":"a.service","mask":true}`)), []byte(infratest))
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		var configs []ignition.Config
		for _, raw := range [][]byte{first, second, third} {
			config, err := ignition.Parse(raw)
			if err != nil {
				return
			}
			configs = append(configs, config)
		}
		merged := ignition.Merge(configs...)
		if inTurn := mergedInTurn(configs); !bytes.Equal(bytesOf(t, inTurn), bytesOf(t, merged)) {
			t.Fatalf("%s\nis, one after the other,\n%s", bytesOf(t, merged), bytesOf(t, inTurn))
		}
		last := configs[len(configs)-1]
		for _, file := range merged.Storage.Files {
			for _, laid := range last.Storage.Files {
				if laid.Path == file.Path && laid.Contents.Source != nil && !reflect.DeepEqual(laid.Contents, file.Contents) {
					t.Fatalf("%s: the contents are not those that were laid over", file.Path)
				}
			}
		}
	})
}

// mergedInTurn merges configurations one after the other. The default of overwrite is set only at the end.
func mergedInTurn(configs []ignition.Config) ignition.Config {
	merged := ignition.New()
	for _, over := range configs {
		merged.Storage.Files = slices.Clone(merged.Storage.Files) // after Ignition's merge, they can be those of the argument
		for _, file := range over.Storage.Files {
			for i, earlier := range merged.Storage.Files {
				if earlier.Path == file.Path && file.Contents.Source != nil {
					merged.Storage.Files[i].Contents = types.Resource{}
				}
			}
		}
		merged = v3_5.Merge(merged, over)
	}
	return ignition.Merge(merged)
}

// FuzzGuard verifies that an accepted configuration has no entry at a reserved path, however it is spelled, and no
// plain text with a kubelet flag that identifies the Node. An error must have a message.
func FuzzGuard(f *testing.F) {
	f.Add([]byte(infratest))
	f.Add([]byte(fileWith("/etc/poolboot/kubelet.env", "A=b")))
	f.Add([]byte(fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "providerID: a")))
	f.Add([]byte(fileWith("/etc/default/kubelet", "A=\"x\n# --node-labels=a=b\"")))
	f.Add([]byte(dropin("kubelet.service", "[Service]\nExecStart=/bin/true")))
	f.Add([]byte(unit(`{"name":"a/../kubelet.service","contents":"[Unit]"}`)))
	f.Add([]byte(link("/etc/systemd/system/a.service", "../../poolboot/a")))
	f.Add([]byte(argument(`quiet "systemd.hostname=a"`)))
	f.Add([]byte(storage("directories", `{"path":"/etc/systemd/system/kubelet.service"}`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, err := ignition.Parse(raw)
		if err != nil {
			return
		}
		err = ignition.Guard(read)
		var refused *ignition.GuardError
		switch {
		case err == nil:
			expectHarmless(t, read)
		case !errors.As(err, &refused), len(refused.Entries) == 0, err.Error() == "":
			t.Fatalf("%#v says nothing", err)
		}
	})
}

// FuzzGuardText verifies the same for any file with any text, which random documents rarely have.
func FuzzGuardText(f *testing.F) {
	f.Add("/etc/default/kubelet", "# --node-labels=a\nA=--provider-id=a")
	f.Add("/etc/systemd/system/kubelet.service.d/1.conf", "[Service]\n# a \\\nExecStart=/a")
	f.Add("/opt/a", "kubelet --node\"-\"labels \\x2d")
	f.Add("/etc/systemd/system/a@.service", "[Unit]\n[Install]\nAlso=a@%i.timer \\\n b.socket\nWantedBy=\"c.target\"\nAlias=d@.service\nDefaultInstance=e\n")
	f.Fuzz(func(t *testing.T, path, text string) {
		config, err := ignition.Parse([]byte(fileWith(path, text)))
		if err == nil && ignition.Guard(config) == nil {
			expectHarmless(t, config)
			expectInstallable(t, path, text)
		}
	})
}

// expectHarmless checks again, with simple comparisons, what a host would have.
func expectHarmless(t *testing.T, config ignition.Config) {
	t.Helper()
	var texts []string
	at := func(place string) {
		for _, reserved := range ignition.Reserved() {
			if place == strings.TrimSuffix(reserved, "/") || strings.HasSuffix(reserved, "/") && strings.HasPrefix(place, reserved) {
				t.Fatalf("%s passed", place)
			}
		}
	}
	for _, file := range config.Storage.Files {
		at(file.Path)
		if data, err := ignition.Contents(file.Contents, 1<<20); err == nil {
			texts = append(texts, string(data))
		}
	}
	for _, directory := range config.Storage.Directories {
		at(directory.Path)
	}
	for _, link := range config.Storage.Links {
		at(link.Path)
	}
	const units = "/etc/systemd/system"
	for _, unit := range config.Systemd.Units {
		place := path.Join(units, unit.Name)
		at(place)
		if unit.Contents != nil && *unit.Contents != "" {
			texts = append(texts, *unit.Contents)
			if place == path.Join(units, ignition.KubeletUnit) {
				t.Fatalf("%s passed", unit.Name)
			}
		}
		for _, dropin := range unit.Dropins {
			if place := path.Join(units, unit.Name+".d", dropin.Name); path.Dir(place) != path.Join(units, unit.Name+".d") {
				t.Fatalf("%s passed", place)
			}
			if dropin.Contents != nil {
				texts = append(texts, *dropin.Contents)
			}
		}
	}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			flag := strings.Index(line, "--node-labels=")
			if flag >= 0 && !strings.ContainsAny(line[:flag], "#;") && !strings.HasPrefix(text, "\x7fELF") {
				t.Fatalf("%q passed", line)
			}
		}
	}
}

// expectInstallable checks again, with a simple comparison, that a unit of only letters and line ends names only units.
func expectInstallable(t *testing.T, name, text string) {
	t.Helper()
	isPlain := !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("[]=.@\n", r) && (r < 'A' || r > 'z' || r == '\\') })
	if _, install, has := strings.Cut("\n"+text, "\n[Install]\n"); has && isPlain && path.Ext(name) == ".service" && path.Dir(name) == "/etc/systemd/system" {
		for line := range strings.Lines(install) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "[") {
				return
			}
			if named, is := strings.CutPrefix(line, "Also="); is && named != "" && !strings.Contains(named, ".") {
				t.Fatalf("%q passed", line)
			}
		}
	}
}

func expectParseError(t *testing.T, err error) {
	t.Helper()
	var parseError *ignition.ParseError
	if !errors.As(err, &parseError) || len(parseError.Problems) == 0 || parseError.Problems[0].Message == "" {
		t.Fatalf("%#v says nothing", err)
	}
}

func expectStable(t *testing.T, read ignition.Config) {
	t.Helper()
	written := bytesOf(t, read)
	if _, report, err := config.Parse(written); err != nil {
		t.Fatalf("Ignition refuses %s: %v %s", written, err, report)
	}
	again, err := ignition.Parse(written)
	if err != nil {
		t.Fatalf("%s: %v", written, err)
	}
	if rewritten := bytesOf(t, again); !bytes.Equal(written, rewritten) {
		t.Fatalf("%s\nbecame\n%s", written, rewritten)
	}
}

func bytesOf(t *testing.T, config ignition.Config) []byte {
	t.Helper()
	written, err := ignition.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return written
}
