package systemd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// rootWith returns a root directory with files.
func rootWith(files map[string]string) string {
	root := GinkgoT().TempDir()
	for name, text := range files {
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)).To(Succeed())
	}
	return root
}

const etc, vendor = "etc/systemd/system/", "usr/lib/systemd/system/"

var _ = Describe("Reading a unit", func() {
	It("applies drop-ins of all directories in the order of their names, and prefers the stronger directory", func() {
		u, err := Load(rootWith(map[string]string{
			vendor + "a.service":             "[Service]\nExecStart=/bin/vendor\nEnvironment=A=1\n",
			vendor + "a.service.d/10-x.conf": "[Service]\nEnvironment=A=vendor10\n",
			etc + "a.service.d/10-x.conf":    "[Service]\nEnvironment=A=10\n",
			vendor + "a.service.d/20-y.conf": "[Service]\nExecStart=\nExecStart=/bin/y\nEnvironment=A=20\n",
		}), "a.service")
		Expect(err).NotTo(HaveOccurred())
		Expect(u.list("Service", "ExecStart")).To(Equal([]string{"/bin/y"}))
		Expect(u.list("Service", "Environment")).To(Equal([]string{"A=1", "A=10", "A=20"}))
	})

	It("prefers the unit file in /etc and detects masked units", func() {
		root := rootWith(map[string]string{vendor + "a.service": "[Service]\nExecStart=/bin/true\n", etc + "x": ""})
		Expect(os.Symlink("/dev/null", filepath.Join(root, etc, "a.service"))).To(Succeed())
		Expect(Load(root, "a.service")).To(HaveField("Masked", BeTrue()))
	})

	DescribeTable("refuses settings that systemd or this package does not support", func(text, why string) {
		u, err := Load(rootWith(map[string]string{etc + "a.service": text}), "a.service")
		if err == nil {
			err = u.validate()
		}
		Expect(err).To(MatchError(ContainSubstring(why)))
	},
		Entry("an unknown setting", "[Service]\nExecStart=/bin/a\nUser=core\n", "[Service] User=: not understood"),
		Entry("an unknown section", "[Server]\nExecStart=/bin/a\n", "[Server] ExecStart=: not understood"),
		Entry("a program without a path", "[Service]\nExecStart=kubelet\n", "not an absolute path"),
		Entry("two main programs", "[Service]\nExecStart=/bin/a\nExecStart=/bin/b\n", "there 2 times"),
		Entry("no main program", "[Service]\nType=simple\n", "there 0 times"),
		Entry("a oneshot that always restarts", "[Service]\nType=oneshot\nExecStart=/bin/a\nRestart=always\n", "refuses it"),
		Entry("an unclosed quote", "[Service]\nExecStart=/bin/a 'b\n", "quote is not closed"),
		Entry("an unknown specifier", "[Service]\nExecStart=/bin/a %H\n", "specifier %H"),
		Entry("an unknown type", "[Service]\nType=dbus\nExecStart=/bin/a\n", "Type=dbus: not understood"),
		Entry("an invalid time span", "[Service]\nExecStart=/bin/a\nRestartSec=soon\n", "not a time span"),
		Entry("a relative condition", "[Unit]\nConditionPathExists=!etc/x\n[Service]\nExecStart=/bin/a\n", "not an absolute path"),
	)

	DescribeTable("reads time spans", func(value string, expected time.Duration) {
		u, err := Load(rootWith(map[string]string{
			etc + "a.service": "[Service]\nExecStart=/bin/a\nRestartSec=" + value + "\n"}), "a.service")
		Expect(err).NotTo(HaveOccurred())
		Expect(u.duration("Service", "RestartSec", time.Hour)).To(Equal(expected))
	},
		Entry("plain seconds", "10", 10*time.Second),
		Entry("with a unit", "250ms", 250*time.Millisecond),
		Entry("with several parts", "1min 30s", 90*time.Second),
		Entry("without end", "infinity", time.Duration(0)),
	)

	DescribeTable("evaluates conditions on paths", func(condition string, holds bool) {
		root := rootWith(map[string]string{
			etc + "a.service": "[Unit]\nConditionPathExists=" + condition + "\n[Service]\nExecStart=/bin/a\n", "etc/there": ""})
		u, err := Load(root, "a.service")
		Expect(err).NotTo(HaveOccurred())
		Expect(u.conditionsHold(root)).To(Equal(holds))
	},
		Entry("an existing path", "/etc/there", true),
		Entry("a missing path", "/etc/missing", false),
		Entry("a negated existing path", "!/etc/there", false),
		Entry("a negated missing path", "!/etc/missing", true),
	)
})

var _ = Describe("The units of a boot", func() {
	It("are those with an [Install] section that presets enable, in the order of the preset files, and those of links", func() {
		installed := "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"
		root := rootWith(map[string]string{
			"etc/systemd/system-preset/20-ignition.preset":    "enable a.service\ndisable b.service\n",
			"usr/lib/systemd/system-preset/90-vendor.preset":  "# vendor\nenable b.service\nenable c.service\n",
			"usr/lib/systemd/system-preset/99-default.preset": "disable *\n",
			etc + "a.service":                                    installed,
			vendor + "b.service":                                 installed,
			vendor + "c.service":                                 "[Service]\nExecStart=/bin/c\n[Install]\nWantedBy=a.service\n",
			vendor + "d.service":                                 installed,
			etc + "multi-user.target.wants/e.service":            "",
			"etc/systemd/system/local-fs.target.requires/f.path": "",
		})
		Expect(wants(root)).To(And(
			HaveKeyWithValue("multi-user.target", ConsistOf("a.service", "e.service")),
			HaveKeyWithValue("local-fs.target", ConsistOf("f.path")),
			HaveKeyWithValue("a.service", ConsistOf("c.service")),
			HaveLen(3)))
	})

	It("can't include a unit without [Install] section that a preset enables", func() {
		_, err := wants(rootWith(map[string]string{
			"etc/systemd/system-preset/20-ignition.preset": "enable a.service\n",
			etc + "a.service": "[Service]\nExecStart=/bin/a\n",
		}))
		Expect(err).To(MatchError(ContainSubstring("no [Install] section")))
	})
})

var _ = Describe("A command line", func() {
	env := map[string]string{"ONE": "1", "TWO": "a 'b c'  d", "EMPTY": ""}

	DescribeTable("is split into arguments as in systemd", func(line string, expected ...string) {
		u := &Unit{Name: "x.service"}
		parsed, err := u.parseCommand("ExecStart", line)
		Expect(err).NotTo(HaveOccurred())
		Expect(expand(parsed.words, env)).To(Equal(expected))
	},
		Entry("words and quotes", `/bin/a b "c d" 'e "f"' g"h i"`, "/bin/a", "b", "c d", `e "f"`, "gh i"),
		Entry("a variable as a word is split", `/bin/a $TWO z`, "/bin/a", "a", "b c", "d", "z"),
		Entry("quotes around a variable change nothing", `/bin/a "$TWO"`, "/bin/a", "a", "b c", "d"),
		Entry("a variable in braces is one word", `/bin/a ${TWO} x=${ONE}y`, "/bin/a", "a 'b c'  d", "x=1y"),
		Entry("a variable without braces in a word is not replaced", `/bin/a x=$ONE`, "/bin/a", "x=$ONE"),
		Entry("empty and unset variables are removed", `/bin/a $EMPTY $UNSET ${EMPTY}`, "/bin/a", ""),
		Entry("two dollar signs are one", `/bin/a $$ONE "$$@"`, "/bin/a", "$ONE", "$@"),
		Entry("escapes", `/bin/a \x20`[:7]+`a\tb "\"" \\`, "/bin/a", "a\tb", `"`, `\`),
		Entry("specifiers", `/bin/a %n %p 100%%`, "/bin/a", "x.service", "x", "100%"),
		Entry("an ignored failure", `-/bin/a`, "/bin/a"),
	)
})

var _ = Describe("The environment", func() {
	It("has settings before files, the last value of a variable, and an error for a missing file without prefix", func() {
		root := rootWith(map[string]string{
			etc + "a.service": "[Service]\nExecStart=/bin/a\nEnvironment=\"A=1 2\" B=unit\nEnvironment=C=unit\n" +
				"EnvironmentFile=/etc/one.env\nEnvironmentFile=-/etc/missing.env\n",
			"etc/one.env": "# words\n; more\nB=file\nD=\"x \\\"y\\\" $Z\"\nE='raw \\n'\n F = plain \"quotes\" \\\n  stay \nG=\n",
		})
		u, err := Load(root, "a.service")
		Expect(err).NotTo(HaveOccurred())
		Expect(u.environment(root)).To(And(
			HaveKeyWithValue("A", "1 2"), HaveKeyWithValue("B", "file"), HaveKeyWithValue("C", "unit"),
			HaveKeyWithValue("D", `x "y" $Z`), HaveKeyWithValue("E", `raw \n`),
			HaveKeyWithValue("F", `plain "quotes"   stay`), HaveKeyWithValue("G", "")))
	})

	DescribeTable("refuses an invalid file", func(text, why string) {
		Expect(parseEnvironment(text, map[string]string{})).To(MatchError(ContainSubstring(why)))
	},
		Entry("a line without a value", "A=1\nexport\n", "line 2"),
		Entry("an open quote", "A=\"1\n", "not closed"),
		Entry("text after the quotes", "A=\"1\" 2\n", "after the closing quote"),
	)
})

// FuzzCommandLine checks that the parser does not panic.
func FuzzCommandLine(f *testing.F) {
	for _, line := range []string{`/bin/a $B ${C} "d e"`, `-/bin/a '\\' %n`, `/a ${`, `\`} {
		f.Add(line)
	}
	f.Fuzz(func(_ *testing.T, line string) {
		u := &Unit{Name: "x.service"}
		if parsed, err := u.parseCommand("ExecStart", line); err == nil {
			_, _ = expand(parsed.words, map[string]string{"B": line})
		}
	})
}

// FuzzEnvironment checks that the parser of environment files does not panic.
func FuzzEnvironment(f *testing.F) {
	for _, text := range []string{"A=1\n", "A=\"x\\\"\"\n", "A=\\\nB", "'"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) { _ = parseEnvironment(text, map[string]string{}) })
}
