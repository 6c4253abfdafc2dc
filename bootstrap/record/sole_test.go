package record_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// Each question about a boot has one function that answers it. This test reads the sources of all programs, without
// their tests, and fails when code outside of this package reads the data on which an answer depends.
var _ = Describe("Other packages do not read the record themselves", Ordered, func() {
	const root = "../.."
	// read are the selectors that each file reads, without those that it assigns to. compared are those that it
	// compares.
	var read, compared map[string][]string
	BeforeAll(func() {
		read, compared = map[string][]string{}, map[string][]string{}
		for _, folder := range []string{"bootstrap", "controllers", "cmd"} {
			Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
				ast.Inspect(file, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.BinaryExpr:
						if n.Op == token.EQL || n.Op == token.NEQ {
							compared[name] = append(compared[name], chain(n.X), chain(n.Y))
						}
					case *ast.IndexExpr:
						read[name] = append(read[name], chain(n.X)+"["+chain(n.Index)+"]")
					case *ast.SelectorExpr:
						read[name] = append(read[name], chain(n))
					}
					return true
				})
				return nil
			})).To(Succeed())
		}
		Expect(len(read)).To(BeNumerically(">", 200), "the sources were read")
	})
	// files returns the files that use a selector that ends with one of the suffixes, except this package and those
	// that are allowed to.
	files := func(uses map[string][]string, suffixes []string, allowed ...string) (found []string) {
		for file, selectors := range uses {
			if slices.ContainsFunc(append(allowed, "bootstrap/record/"), func(prefix string) bool { return strings.HasPrefix(file, prefix) }) {
				continue
			}
			if slices.ContainsFunc(selectors, func(s string) bool {
				return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix("."+s, "."+suffix) })
			}) {
				found = append(found, file)
			}
		}
		return found
	}

	It("the kind of a host: use record.HostKindOf, IsMachineless or IsEnrolled", func() {
		Expect(files(compared, []string{"Spec.Host.Type", "Host.Type"})).To(BeEmpty())
		Expect(files(read, []string{"HostTypeEnrollment", "HostTypeBareMetalHost"},
			"controllers/baremetalhost/", "controllers/enrollment/", // set it
		)).To(BeEmpty())
		Expect(files(read, []string{"Spec.Host.IsDefined"})).To(BeEmpty())
	})
	It("whether a Node is on record: use record.HasNode", func() {
		Expect(files(read, []string{"config.Status.NodeRef.IsDefined", "Config.Status.NodeRef.IsDefined", "c.Status.NodeRef.IsDefined"})).To(BeEmpty())
	})
	It("whether a Node belongs to a PoolbootConfig, and whether a kubelet uses it: use record.IsNodeOf, ConfigOfNode or HasKubelet", func() {
		Expect(files(read, []string{"NodeConfigAnnotation"},
			"bootstrap/registration/register.go", "controllers/host/node/decision.go", // set it, and describe a Node that lost it
			"controllers/host/node/adoption.go", "bootstrap/join/agent.go", // set it on a Node that joined before, whose host looks for it
		)).To(BeEmpty())
		Expect(files(read, []string{"NodeInfo.KubeletVersion"})).To(BeEmpty())
	})
	It("which join credential is on record, and whether it was used: use record.HasCredential, IsCredential or IsCredentialUsed", func() {
		Expect(files(compared, []string{"Status.Boot.CredentialID"})).To(BeEmpty())
	})
	It("the stage of a boot: use record.HasRequested, IsRequestPending, WasPrepared or StageOf", func() {
		Expect(files(compared, []string{"Requests.RequestedTime", "requests.RequestedTime", "Boot.PreparedTime", "boot.PreparedTime"})).To(BeEmpty())
		Expect(files(read, []string{"requests.RequestedTime.After", "Requests.RequestedTime.After", "Requests.RequestedTime.Equal", "prepared.Before", "PreparedTime.Before"})).To(BeEmpty())
		Expect(files(read, []string{"NodeReadyInPoolReason"}, "controllers/host/node/decision.go", "bootstrap/outlook/")).To(BeEmpty())
	})
	It("which Cluster and overlay it has: use record.ClusterName, ClusterKey or OverlayName", func() {
		Expect(files(read, []string{"OverlayNamePrefix"})).To(BeEmpty())
		Expect(files(read, []string{"config.Labels[clusterv1.ClusterNameLabel]", "c.Labels[clusterv1.ClusterNameLabel]", "Config.Labels[clusterv1.ClusterNameLabel]"},
			"controllers/internal/hostpool/",           // sets it
			"controllers/machineconfigpool/history.go", // of a MachineConfig
		)).To(BeEmpty())
	})
	It("whether a token is accepted, and whether a host has joined: use record.TokenOf, HasJoined or IsTokenExpired", func() {
		Expect(files(read, []string{"TokenHashAnnotation", "TokenUIDAnnotation"},
			"bootstrap/access/token.go", "controllers/enrollment/", // write them
		)).To(BeEmpty())
		Expect(files(read, []string{"TokenStateAnnotation"},
			"controllers/host/bootstrapdata/token.go", "bootstrap/server/refusal.go", // removes it, and names it in a message
		)).To(BeEmpty())
		Expect(files(read, []string{"TokenStateRevoked", "TokenStateExpired"})).To(BeEmpty())
		Expect(files(read, []string{"RotateTokenAnnotation"},
			"bootstrap/outlook/remedy.go", "controllers/host/bootstrapdata/token.go", "cmd/kubectl-poolboot/internal/movecheck/traps.go", // remove it, and name it in messages
		)).To(BeEmpty())
	})
})

// chain returns a chain of selectors as it is written, without indexes; "" for any other expression.
func chain(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return strings.TrimPrefix(chain(e.X)+"."+e.Sel.Name, ".")
	case *ast.IndexExpr:
		return chain(e.X)
	case *ast.ParenExpr:
		return chain(e.X)
	case *ast.StarExpr:
		return chain(e.X)
	}
	return ""
}
