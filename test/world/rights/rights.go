// Package rights reads the rights of Poolboot's programs from the tables of docs/dev/security.md, from the RBAC rules
// of a release, and from an API server's audit log, which has the used rights and the roles that allowed them.
package rights

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// The ServiceAccounts of the two programs.
const (
	Manager      = "poolboot-manager"
	ConfigServer = "poolboot-config-server"
)

// Right is a verb on a resource.
type Right struct {
	// Where is All, Own, or a namespace in a workload cluster.
	Where string
	// Resource has the format of kubectl auth can-i: machineconfigs.poolboot.io/status.
	Resource string
	Verb     string
}

const (
	// All is for all namespaces and for cluster-scoped resources.
	All = "all"
	// Own is the namespace of Poolboot.
	Own = "own"
)

// SeenInIntegrationOnly are the rights that the manager uses in a workload cluster in test/suites/integration and not
// in test/suites/e2e: it lists resources because streaming lists are disabled, reads the token of a host that requests
// its configuration twice, reads readiness rules, drains Nodes, and impersonates the user
// that reads update gates.
var SeenInIntegrationOnly = []Right{
	{Where: All, Resource: "nodereadinessrules.readiness.node.x-k8s.io", Verb: "list"},
	{Where: All, Resource: "nodes", Verb: "list"},
	{Where: All, Resource: "certificatesigningrequests.certificates.k8s.io", Verb: "list"},
	{Where: "kube-system", Resource: "secrets", Verb: "get"},
	{Where: All, Resource: "validatingadmissionpolicies.admissionregistration.k8s.io", Verb: "list"},
	{Where: All, Resource: "validatingadmissionpolicybindings.admissionregistration.k8s.io", Verb: "list"},
	{Where: All, Resource: "clusterrolebindings.rbac.authorization.k8s.io", Verb: "list"},
	{Where: All, Resource: "clusterroles.rbac.authorization.k8s.io", Verb: "list"},
	{Where: "kube-system", Resource: "roles.rbac.authorization.k8s.io", Verb: "list"},
	{Where: "kube-system", Resource: "rolebindings.rbac.authorization.k8s.io", Verb: "list"},
	{Where: All, Resource: "pods", Verb: "list"},
	{Where: All, Resource: "pods/eviction", Verb: "create"},
	{Where: All, Resource: "namespaces", Verb: "list"},
	{Where: All, Resource: "daemonsets.apps", Verb: "get"},
	{Where: All, Resource: "volumeattachments.storage.k8s.io", Verb: "list"},
	{Where: All, Resource: "persistentvolumes", Verb: "get"},
	{Where: All, Resource: "users", Verb: "impersonate"},
}

// SeenInFlowsOnly are those that it uses in docs/flows.md and not in test/suites/e2e: it creates events about Nodes
// that no pool can have.
var SeenInFlowsOnly = []Right{{Where: "default", Resource: "events.events.k8s.io", Verb: "create"}}

// SeenInControlPlaneOnly are those that it uses in a workload cluster whose control plane follows a pool.
var SeenInControlPlaneOnly = []Right{{Where: "kube-node-lease", Resource: "leases.coordination.k8s.io", Verb: "get"}}

// String returns the verb and resource for kubectl auth can-i, and where the right applies.
func (r Right) String() string { return r.Verb + " " + r.Resource + " (" + r.Where + ")" }

// formatResource returns the resource of a Right.
func formatResource(group, name, subresource string) string {
	return strings.TrimSuffix(schema.GroupResource{Group: group, Resource: name}.String()+"/"+subresource, "/")
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z, ]+) \\| ([a-z-]+) \\| (\\S.*) \\|$")

// Documented returns the rights in the table below a heading of docs/dev/security.md. Each row must have a purpose.
func Documented(heading string) (rights []Right, err error) {
	document, err := os.ReadFile(sourcetree.Path("docs", "dev", "security.md"))
	if err != nil {
		return nil, err
	}
	_, section, found := strings.Cut(string(document), "\n### "+heading+"\n")
	if !found {
		return nil, fmt.Errorf("docs/dev/security.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	rows := row.FindAllStringSubmatch(section, -1)
	if lines := strings.Count(section, "\n|"); lines != len(rows)+2 {
		return nil, fmt.Errorf("docs/dev/security.md, %s: %d of %d lines of the table can be read", heading, len(rows), lines-2)
	}
	for _, cells := range rows {
		for verb := range strings.SplitSeq(cells[2], ", ") {
			rights = append(rights, Right{Where: cells[3], Resource: cells[1], Verb: verb})
		}
	}
	return rights, nil
}

// Granted returns the rights of a ServiceAccount in a release: those of the ClusterRole and the Role with its name.
func Granted(objects []unstructured.Unstructured, account string) (rights []Right, err error) {
	for _, object := range objects {
		where, ok := map[string]string{"ClusterRole": All, "Role": Own}[object.GetKind()]
		if !ok || object.GetName() != account {
			continue
		}
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			return nil, err
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, name := range rule.Resources {
					name, subresource, _ := strings.Cut(name, "/")
					for _, verb := range rule.Verbs {
						rights = append(rights, Right{Where: where, Resource: formatResource(group, name, subresource), Verb: verb})
					}
				}
			}
		}
	}
	return rights, nil
}

// UsedInManagement returns the rights that a program used in the management cluster, from the role that allowed each
// request, and its requests that were refused. It ignores the requests of tests that impersonate the program.
func UsedInManagement(plane *controlplane.ControlPlane, program string) (used []Right, refused []string, err error) {
	err = plane.EachRequest(func(r controlplane.Request) {
		account := cmp.Or(r.Impersonated.Name, r.User.Name)
		if account != "system:serviceaccount:poolboot-system:"+program || strings.Contains(r.UserAgent, ".test/") || r.Object.Resource == "" {
			return
		}
		where := Own
		decision, reason := r.Annotations["authorization.k8s.io/decision"], r.Annotations["authorization.k8s.io/reason"]
		switch {
		case decision == "forbid":
			refused = append(refused, r.Verb+" "+r.RequestURI)
			return
		case decision != "allow": // not authorized yet: there were too many requests, or the client disconnected
			return
		case strings.Contains(reason, `ClusterRoleBinding "`+program+`"`):
			where = All
		}
		used = append(used, Right{Where: where, Resource: formatResource(r.Object.APIGroup, r.Object.Resource, r.Object.Subresource), Verb: r.Verb})
	})
	return distinct(used), refused, err
}

// UsedInWorkload returns the rights that the manager used in a workload cluster. It identifies the manager by its user
// agent, because it has the user of Cluster API's kubeconfig there. A request as another user needs the right to
// impersonate that user, and the rights of that user.
func UsedInWorkload(plane *controlplane.ControlPlane) (used []Right, err error) {
	err = plane.EachRequest(func(r controlplane.Request) {
		if !strings.Contains(r.UserAgent, " "+Manager+" ") || r.Object.Resource == "" {
			return
		}
		if r.Impersonated.Name != "" {
			used = append(used, Right{Where: All, Resource: "users", Verb: "impersonate"})
			return
		}
		where := r.Object.Namespace
		if where == "" || r.Object.Resource == "pods" || r.Object.Resource == "daemonsets" { // those of users
			where = All
		}
		used = append(used, Right{Where: where, Resource: formatResource(r.Object.APIGroup, r.Object.Resource, r.Object.Subresource), Verb: r.Verb})
	})
	return distinct(used), err
}

func distinct(rights []Right) []Right {
	slices.SortFunc(rights, func(a, b Right) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(rights)
}
