package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/poolboot/cluster-api-bootstrap-provider-poolboot"
)

// packages maps each package of the repository, as a path from its root, to its imports. Imports of test files count
// only in packages that have no other files.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	sources, tests := map[string][]string{}, map[string][]string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case "bin", "out", ".git", "testdata", "tools", "example":
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		into := sources
		if strings.HasSuffix(file, "_test.go") {
			into = tests
		}
		into[folder] = append(into[folder], folder) // a file without imports is a package too
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			into[folder] = append(into[folder], imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, imports := range tests {
		if sources[folder] == nil {
			sources[folder] = imports
		}
	}
	return sources
}

// own returns an import path as a path from the repository's root, and false if the package is in another module.
func own(imported string) (string, bool) { return strings.CutPrefix(imported, module+"/") }

// parts are the nodes of the diagram, the more specific ones first. A package belongs to the first part that contains
// it.
var parts = []string{
	"controllers/internal", "controllers", "cmd", "bootstrap", "api", "config",
	"test/suites", "test/bench", "test/demo", "test/poolboottest", "test/world", "hack",
}

func partOf(folder string) string {
	for _, part := range parts {
		if isIn(folder, part) {
			return part
		}
	}
	return folder
}

func isIn(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

// diagram returns the arrows of the diagram in docs/dev/design.md.
func diagram(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "dev", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```mermaid\nflowchart.*?\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("docs/dev/design.md has no mermaid flowchart")
	}
	names := map[string]string{}
	for _, node := range regexp.MustCompile(`(\w+)\["([^"<]+)`).FindAllSubmatch(block[1], -1) {
		names[string(node[1])] = strings.TrimSpace(string(node[2]))
	}
	arrows := map[string][]string{}
	for _, arrow := range regexp.MustCompile(`(?m)^\s*(\w+) --> (\w+)$`).FindAllSubmatch(block[1], -1) {
		from, to := names[string(arrow[1])], names[string(arrow[2])]
		if from == "" || to == "" {
			t.Fatalf("docs/dev/design.md: an end of the arrow %q has no name", arrow[0])
		}
		arrows[from] = append(arrows[from], to)
	}
	return arrows
}

// leads reports whether a path of arrows leads from one part to another.
func leads(arrows map[string][]string, from, to string) bool {
	return slices.ContainsFunc(arrows[from], func(next string) bool { return next == to || leads(arrows, next, to) })
}

func TestImportsFollowTheDiagram(t *testing.T) {
	arrows := diagram(t)
	used := map[[2]string]bool{}
	for folder, imports := range packages(t) {
		for _, imported := range imports {
			to, ok := own(imported)
			if !ok || partOf(to) == partOf(folder) {
				continue
			}
			used[[2]string{partOf(folder), partOf(to)}] = true
			if !leads(arrows, partOf(folder), partOf(to)) {
				t.Errorf("%s imports %s, and no arrow in docs/dev/design.md leads from %s to %s", folder, to, partOf(folder), partOf(to))
			}
		}
	}
	for from, all := range arrows {
		for _, to := range all {
			if !used[[2]string{from, to}] {
				t.Errorf("docs/dev/design.md has an arrow from %s to %s, and no package of %s imports one of %s", from, to, from, to)
			}
		}
	}
}

func TestNoReconcilerImportsAnother(t *testing.T) {
	for folder, imports := range packages(t) {
		if !strings.HasPrefix(folder, "controllers/") {
			continue // the package controllers itself registers all of them
		}
		for _, imported := range imports {
			to, ok := own(imported)
			if ok && strings.HasPrefix(to, "controllers") && !isIn(to, reconcilerOf(folder)) && !isIn(to, "controllers/internal") {
				t.Errorf("%s imports %s: move what both need to controllers/internal, or to bootstrap if it does no I/O", folder, to)
			}
		}
	}
}

// reconcilerOf returns the folder of the reconciler to which a folder below controllers belongs.
func reconcilerOf(folder string) string {
	return strings.Join(strings.Split(folder, "/")[:2], "/")
}

// connected maps the packages that can access an API server, another host or the file system to the packages of
// bootstrap that can import them.
var connected = map[string][]string{
	"os":                             {"bootstrap/agent"},
	"os/exec":                        {"bootstrap/agent/command"},
	"syscall":                        {"bootstrap/agent", "bootstrap/server"},
	"golang.org/x/sys":               {"bootstrap/agent"},
	"net/http":                       {"bootstrap/agent", "bootstrap/kubeconfig", "bootstrap/server"},
	"k8s.io/client-go":               nil,
	"sigs.k8s.io/controller-runtime": nil,
}

// harmless are packages in modules of connected: types, and interfaces that callers implement.
var harmless = []string{
	"k8s.io/client-go/applyconfigurations", "k8s.io/client-go/rest", "k8s.io/client-go/tools/clientcmd", "sigs.k8s.io/controller-runtime/pkg/client",
}

func TestBootstrapDoesNoIO(t *testing.T) {
	for folder, imports := range packages(t) {
		if !isIn(folder, "bootstrap") {
			continue
		}
		for _, imported := range imports {
			for parent, permitted := range connected {
				isHarmless := slices.ContainsFunc(harmless, func(p string) bool { return isIn(imported, p) })
				isPermitted := slices.ContainsFunc(permitted, func(p string) bool { return isIn(folder, p) })
				if isIn(imported, parent) && !isHarmless && !isPermitted {
					t.Errorf("%s imports %s: bootstrap decides and does no I/O; let a package of controllers call it", folder, imported)
				}
			}
			if to, ok := own(imported); ok && partOf(to) != "bootstrap" && partOf(to) != "api" {
				t.Errorf("%s imports %s: bootstrap imports nothing but api", folder, to)
			}
		}
	}
}

func TestAPIImportsNothingElse(t *testing.T) {
	for folder, imports := range packages(t) {
		for _, imported := range imports {
			if to, ok := own(imported); ok && isIn(folder, "api") && !isIn(to, "api") {
				t.Errorf("%s imports %s: api is a Go module of its own for everyone who imports the kinds", folder, to)
			}
		}
	}
}

// hostCode is what is to run on hosts and has no client of an API server.
var hostCode = []string{
	"bootstrap/agent/accounts",
	"bootstrap/agent/systemd",
	"api/agent/v1alpha1", "bootstrap/ignition", "bootstrap/hosttree", "bootstrap/update", "bootstrap/assignment", "bootstrap/agent", "bootstrap/agent/hostfiles",
	"bootstrap/agent/apiserver", "bootstrap/agent/configserver", "bootstrap/agent/kubelet", "bootstrap/agent/service",
	"bootstrap/agent/command", "bootstrap/agent/containerimages", "bootstrap/agent/diskspace", "bootstrap/agent/durable", "bootstrap/agent/kernelarguments",
	"bootstrap/agent/kubeletflags", "bootstrap/agent/osimage", "bootstrap/agent/rpmostree", "bootstrap/agent/selinux", "bootstrap/agent/unitstate",
	"bootstrap/excerpt",
}

// TestHostCodeIsSmall promises that what is to run on hosts links neither Kubernetes, whose types alone would double
// the size of a program, nor Butane.
func TestHostCodeIsSmall(t *testing.T) {
	all := packages(t)
	for _, folder := range hostCode {
		if all[folder] == nil {
			t.Errorf("%s does not exist", folder)
		}
		for _, imported := range all[folder] {
			to, ok := own(imported)
			isSmall := !isIn(imported, "github.com/coreos/butane") && (!isIn(imported, "k8s.io") && !isIn(imported, "sigs.k8s.io") || imported == "k8s.io/utils/ptr" || imported == "sigs.k8s.io/yaml")
			if ok && !slices.Contains(hostCode, to) || !ok && !isSmall {
				t.Errorf("%s imports %s: read API objects in bootstrap/pool, and Butane in bootstrap/pool", folder, imported)
			}
		}
	}
}

// TestAgentIsOnlyOnHosts promises that the agent does not link the API or what runs in the management cluster, and that
// only programs import it.
func TestAgentIsOnlyOnHosts(t *testing.T) {
	for folder, imports := range packages(t) {
		for _, imported := range imports {
			to, ok := own(imported)
			switch {
			case !ok:
			case isIn(folder, "bootstrap/agent") && (isIn(to, "api") && to != "api/agent/v1alpha1" || isIn(to, "controllers") || isIn(to, "bootstrap/server") || isIn(to, "bootstrap/pool")):
				t.Errorf("%s imports %s: the agent gets what it needs as update.Policy and as Ignition", folder, to)
			case isIn(to, "bootstrap/agent") && !isIn(folder, "bootstrap/agent") && !isIn(folder, "cmd"):
				t.Errorf("%s imports %s, which changes the host that it runs on: let a program of cmd call it", folder, to)
			}
		}
	}
}

// TestSequentialPackagesStartNoGoroutine promises that the race detector has nothing to find in the packages that are
// tested without it.
func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^SEQUENTIAL := (.+)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile does not define SEQUENTIAL")
	}
	for _, folder := range strings.Fields(string(list[1])) {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: it has no files: %v", folder, err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(node ast.Node) bool {
				if _, starts := node.(*ast.GoStmt); starts {
					t.Errorf("%s starts a goroutine: remove %s from SEQUENTIAL in the Makefile", file, folder)
				}
				return true
			})
		}
	}
}

func TestEveryFolderIsAPart(t *testing.T) {
	for _, folder := range slices.Sorted(maps.Keys(packages(t))) {
		if !slices.Contains(parts, partOf(folder)) {
			t.Errorf("%s is in no part of the diagram in docs/dev/design.md: add %s to it and to this test", folder, path.Dir(folder))
		}
	}
}
