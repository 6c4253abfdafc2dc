package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	folder, tag := t.TempDir(), strings.TrimPrefix(server.URL, "http://")+"/poolboot/manager:v0.1.0"
	archive := filepath.Join(folder, "images.tar")
	var images []string
	users := map[string]string{"amd64": user, "arm64": "0:0"}
	for _, architecture := range []string{"amd64", "arm64"} {
		program := filepath.Join(folder, architecture, "manager")
		if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, []byte("for "+architecture), 0o755); err != nil {
			t.Fatal(err)
		}
		image := tag + "," + architecture + "," + program
		if users[architecture] != user {
			image += "," + users[architecture]
		}
		images = append(images, image)
	}
	if err := writeImages(archive, "", images); err != nil {
		t.Fatal(err)
	}
	if err := push(archive); err != nil {
		t.Fatal(err)
	}
	reference, err := name.ParseReference(tag)
	if err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		if err != nil {
			t.Fatalf("a node of architecture %s finds no image: %v", architecture, err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Architecture != architecture || config.Config.User != users[architecture] {
			t.Errorf("a node of architecture %s gets that of %v (%v)", architecture, config, err)
		}
	}
}

func TestMakeReleaseRemovesNoOtherFolder(t *testing.T) {
	folder := t.TempDir()
	mine, out := filepath.Join(folder, "my"), filepath.Join(folder, "out")
	earlier := filepath.Join(out, "bootstrap-poolboot", "v0.1.0")
	for _, path := range []string{mine, earlier} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, variables := range [][]string{
		{"VERSION=v0.1.0", "OUT=" + mine + " releases"}, {"VERSION=", "OUT=" + out}, {"VERSION=v0.2.0/../v0.1.0", "OUT=" + out}, {"VERSION=v0.2.0+rc.1", "OUT=" + out},
	} {
		arguments := append([]string{"-C", "../../..", "release-programs", "ARCHITECTURES=", "PLUGIN_PLATFORMS="}, variables...)
		output, err := exec.Command("make", arguments...).CombinedOutput()
		if err == nil || !strings.Contains(string(output), "What to do: ") {
			t.Errorf("%s is accepted: %v\n%s", variables, err, output)
		}
	}
	for _, path := range []string{mine, earlier} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestMakeReleaseRefusesVersionThatClusterctlRefuses(t *testing.T) {
	for _, version := range []string{"v0.99.0", "v0.11.0", "v1.1.0"} {
		output, err := exec.Command("make", "-C", "../../..", "release-programs", "VERSION="+version, "OUT="+filepath.Join(t.TempDir(), "out"),
			"ARCHITECTURES=", "PLUGIN_PLATFORMS=").CombinedOutput()
		if err == nil || !strings.Contains(string(output), "config/metadata.yaml has no contract for "+version) {
			t.Errorf("%s is accepted: %v\n%s", version, err, output)
		}
	}
}

func TestMakeReleaseBuildsForEveryProcessor(t *testing.T) {
	command := exec.Command("make", "-C", "../../..", "--no-print-directory", "--eval", "levels: ; @go env GOAMD64 GOARM64", "levels")
	command.Env = append(os.Environ(), "GOAMD64=v3", "GOARM64=v9.0")
	if output, err := command.CombinedOutput(); err != nil || !strings.HasSuffix(string(output), "v1\nv8.0\n") {
		t.Errorf("the processors for which this machine builds change a release: %v\n%s", err, output)
	}
}

func TestMakeReleaseTakesRegistryWithSlash(t *testing.T) {
	output, err := exec.Command("make", "-C", "../../..", "--dry-run", "release", "REGISTRY=registry.example.com/site/").CombinedOutput()
	if err != nil || !strings.Contains(string(output), " registry.example.com/site/manager:") || strings.Contains(string(output), "site//") {
		t.Errorf("%v\n%s", err, output)
	}
}

func TestSBOMNamesModuleOfTheSameSource(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.com/project\n\nrequire example.com/project/api v0.0.0\n\nreplace example.com/project/api => ./api\n",
		"main.go":     "package main\n\nimport _ \"example.com/project/api\"\n\nfunc main() {}\n",
		"api/go.mod":  "module example.com/project/api\n",
		"api/main.go": "package api\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program, bom := filepath.Join(folder, "program"), filepath.Join(folder, "sbom.json")
	if output, err := exec.Command("go", "-C", folder, "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := writeSBOM(bom, "v0.2.0", []string{program}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(bom)
	if err != nil || !strings.Contains(string(text), `"purl": "pkg:golang/example.com/project/api@v0.2.0"`) {
		t.Errorf("the module of a folder in the same source is not in the SBOM under its name: %v\n%s", err, text)
	}
}

func TestPushOfNothing(t *testing.T) {
	if err := push(filepath.Join(t.TempDir(), "missing.tar")); err == nil {
		t.Error("a file that does not exist is pushed")
	}
}
