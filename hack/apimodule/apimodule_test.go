package apimodule

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/poolboot/cluster-api-bootstrap-provider-poolboot"
	// sources are the files of all packages in api/.
	sources = "api/*/*/*.go"
)

// direct are the modules that the types import.
var direct = []string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/cluster-api/api"}

// inherited are the modules that direct needs. None of them has a client, a controller or a server.
var inherited = []string{
	"github.com/fxamacker/cbor/v2",
	"github.com/go-logr/logr",
	"github.com/json-iterator/go",
	"github.com/kr/text", // a test of a dependency of direct imports it
	"github.com/modern-go/concurrent",
	"github.com/modern-go/reflect2",
	"github.com/x448/float16",
	"go.yaml.in/yaml/v2",
	"golang.org/x/net",
	"golang.org/x/text",
	"gopkg.in/inf.v0",
	"k8s.io/apiextensions-apiserver",
	"k8s.io/klog/v2",
	"k8s.io/kube-openapi",
	"k8s.io/utils",
	"sigs.k8s.io/json",
	"sigs.k8s.io/randfill",
	"sigs.k8s.io/structured-merge-diff/v6",
}

// heed reads files that a test uses through the go command, so go test runs the test again when one of them changes.
func heed(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no file is %s: %v", pattern, err)
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// goCommand returns the output of the go command in a folder of the repository.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.Command("go", args...)
	command.Dir = filepath.Join(root, dir)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v: %s", strings.Join(args, " "), dir, err, stderr.String())
	}
	return string(output)
}

type requirement struct {
	Path, Version string
	Indirect      bool
}

// required returns the requirements in the go.mod of a folder.
func required(t *testing.T, dir string) []requirement {
	t.Helper()
	var file struct{ Require []requirement }
	if err := json.Unmarshal([]byte(goCommand(t, dir, "mod", "edit", "-json")), &file); err != nil {
		t.Fatal(err)
	}
	return file.Require
}

func TestRequiresOnlyWhatTheTypesNeed(t *testing.T) {
	heed(t, "api/go.mod")
	var got []string
	for _, r := range required(t, "api") {
		got = append(got, r.Path)
		if !r.Indirect && !slices.Contains(direct, r.Path) {
			t.Errorf("api/go.mod requires %s: everybody who imports the types would get it; move what needs it out of api/", r.Path)
		}
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(slices.Concat(direct, inherited)))
	if !slices.Equal(got, want) {
		t.Errorf("api/go.mod requires other modules than are allowed here:\n got %q\nwant %q", got, want)
	}
}

func TestCompilesOnlyWhatTheTypesNeed(t *testing.T) {
	heed(t, "api/go.mod", sources)
	allowed := slices.Concat(direct, inherited, []string{module + "/api"})
	for line := range strings.Lines(goCommand(t, "api", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")) {
		if from := strings.TrimSpace(line); from != "" && !slices.Contains(allowed, from) {
			t.Errorf("the types are compiled with a package of %s", from)
		}
	}
}

func TestIsTestedWithTheVersionsItRequires(t *testing.T) {
	heed(t, "go.mod", "api/go.mod")
	ours := map[string]string{}
	for _, r := range required(t, ".") {
		ours[r.Path] = r.Version
	}
	for _, r := range required(t, "api") {
		if !r.Indirect && ours[r.Path] != r.Version {
			t.Errorf("api/go.mod requires %s %s, and go.mod %s: require the same version in both", r.Path, r.Version, ours[r.Path])
		}
	}
}

// TestNoGroupNeedsTypesOfAnother verifies that one API group can get another version or name without the other group.
// Types that both use are in api/node, which has no kinds.
func TestNoGroupNeedsTypesOfAnother(t *testing.T) {
	heed(t, sources)
	for line := range strings.Lines(goCommand(t, "api", "list", "-f", `{{$in := .ImportPath}}{{range .Imports}}{{$in}} {{.}}{{"\n"}}{{end}}`, "./...")) {
		in, imported, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(imported, module) && (!strings.HasPrefix(imported, module+"/api/node/") || strings.HasPrefix(in, module+"/api/node/")) {
			t.Errorf("%s imports %s: move the types that it needs to api/node", in, imported)
		}
	}
}
