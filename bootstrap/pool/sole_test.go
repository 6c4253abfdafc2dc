package pool_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Each question about pools and names has one function that answers it. These specs read the sources of all
// programs, without their tests, and fail if other code uses the fields that the answer depends on.
var _ = Describe("No other code decides", func() {
	const root = "../.."
	type use struct{ file, text string }
	var compares, mentions []use
	BeforeEach(func() {
		compares, mentions = nil, nil
		for _, folder := range []string{"bootstrap", "controllers", "cmd"} {
			Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				path = filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
				ast.Inspect(file, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.BinaryExpr:
						if n.Op == token.EQL || n.Op == token.NEQ {
							compares = append(compares, use{path, selected(n.X)}, use{path, selected(n.Y)})
						}
					case *ast.SelectorExpr:
						mentions = append(mentions, use{path, selected(n)})
					}
					return true
				})
				return nil
			})).To(Succeed())
		}
		Expect(len(mentions)).To(BeNumerically(">", 1000), "the sources were read")
	})
	// of returns the files with a use that ends in suffix, without the allowed ones.
	of := func(uses []use, suffix string, may ...string) (files []string) {
		for _, u := range uses {
			allowed := false
			for _, prefix := range may {
				allowed = allowed || strings.HasPrefix(u.file, prefix)
			}
			if !allowed && strings.HasSuffix("."+u.text, "."+suffix) {
				files = append(files, u.file)
			}
		}
		return files
	}

	It("which pool has a role: use pool.OfRole, pool.IsCustom or pool.SameRole", func() {
		Expect(of(compares, "Spec.PoolRole", "bootstrap/pool/",
			"controllers/baremetalhost/",                                            // whether a host's annotation asks for another pool than its config has
			"controllers/machineconfigpool/",                                        // which Machines are recorded in a pool, and which are concerned by it
			"cmd/kubectl-poolboot/internal/diff/pools.go",                           // the same
			"cmd/kubectl-poolboot/internal/rollout/fleet.go",                        // the same
			"cmd/kubectl-poolboot/internal/rollout/host_status.go",                  // the same
			"cmd/kubectl-poolboot/internal/rollout/history.go",                      // the same
			"cmd/kubectl-poolboot/internal/input/objects.go",                        // whether a file gives a role at all
			"controllers/internal/workload/management.go",                           // which pools are concerned by an event of a host
			"controllers/host/boot/pool.go", "controllers/internal/update/slots.go", // whether the recorded pool is still the pool
			// Whether the decision is the pool that it should be:
			"bootstrap/registration/register.go", "controllers/host/boot/node.go", "controllers/admission/", "bootstrap/validation/", "cmd/kubectl-poolboot/internal/convert/objects.go",
			"controllers/host/node/decision.go", "controllers/host/node/adoption.go", "cmd/kubectl-poolboot/internal/explain/compare.go",
		)).To(BeEmpty())
	})
	It("which Nodes a pool selects: use pool.Decide or pool.FindRejection", func() {
		Expect(of(mentions, "Spec.NodeSelector", "bootstrap/pool/",
			"bootstrap/validation/machineconfigpool.go", "cmd/kubectl-poolboot/internal/convert/", "cmd/kubectl-poolboot/internal/input/openshift.go", "cmd/kubectl-poolboot/internal/input/source.go", // only whether it is well-formed, or OpenShift's
			"cmd/kubectl-poolboot/internal/diff/declared.go", // shows it
		)).To(BeEmpty())
	})
	It("which pool is retained on a host: use pool.ForBoot", func() {
		Expect(of(mentions, "HostRetainedPoolAnnotation", "bootstrap/pool/",
			"controllers/host/node/node.go", "controllers/host/boot/pool.go", // who writes it, and who names it in a remedy
		)).To(BeEmpty())
	})
	It("which pool spec.poolRole names: use pool.ForBoot", func() {
		Expect(of(mentions, "PoolRetentionHost", "bootstrap/pool/")).To(BeEmpty())
		Expect(of(mentions, "config.Spec.PoolRole", "bootstrap/pool/",
			"controllers/baremetalhost/", "controllers/internal/hostpool/", "controllers/enrollment/", // who writes it, for hosts without a Machine
			"cmd/kubectl-poolboot/internal/adopt/", "cmd/kubectl-poolboot/internal/clitest/", "controllers/host/node/adoption.go", // the same, for a Node that joined before
			"controllers/host/node/decision.go", "cmd/kubectl-poolboot/internal/explain/compare.go", // whether the labels of a Machine or a Node can name its pool
		)).To(BeEmpty())
	})
	It("how a Node is named: use registration.Name", func() {
		Expect(of(mentions, "NodeNameSourceHost", "bootstrap/registration/name.go")).To(BeEmpty())
		Expect(of(mentions, "Machine.Status.NodeRef.Name", "bootstrap/registration/name.go")).To(BeEmpty())
	})
})

// selected is a chain of selectors as it is written, with indexes left out; "" for any other expression.
func selected(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if of := selected(e.X); of != "" {
			return of + "." + e.Sel.Name
		}
		return e.Sel.Name
	case *ast.IndexExpr:
		return selected(e.X)
	case *ast.ParenExpr:
		return selected(e.X)
	case *ast.StarExpr:
		return selected(e.X)
	}
	return ""
}
