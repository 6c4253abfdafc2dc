package image

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestMachineThatCannotBuildAnImage(t *testing.T) {
	for name, c := range map[string]struct{ program, script, message string }{
		"not root":  {"id", "echo 1000", "Only root can build an image. What to do: run the same command with sudo\n"},
		"not amd64": {"dpkg", "echo arm64", "This machine is not Debian for amd64. What to do: "},
		"no Debian": {"dpkg", "exit 127", "This machine is not Debian for amd64. What to do: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("image.sh"); err != nil { // go test also records that the result depends on this file
				t.Fatal(err)
			}
			i := newInitramfs(t)
			i.program("id", "echo 0")
			i.program(c.program, c.script)
			command := exec.Command("./image.sh", "check")
			command.Env = i.environment
			if output, err := command.CombinedOutput(); err == nil || !strings.HasPrefix(string(output), c.message) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}
