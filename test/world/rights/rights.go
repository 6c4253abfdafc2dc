// Package rights compares the rights of Poolboot's programs by where they are told: in the tables of docs/security.md,
// in the RBAC rules of an installable set, and in an API server's audit log, which knows what was used and which role
// allowed it.
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
)

// The two programs, by the names of their ServiceAccounts.
const (
	Manager      = "poolboot-manager"
	ConfigServer = "poolboot-config-server"
)

// Right is one verb on one resource.
type Right struct {
	// Where is All, Own, or in a workload cluster a namespace.
	Where string
	// Resource is as kubectl auth can-i takes it: machineconfigs.pool.cluster.x-k8s.io/status.
	Resource string
	Verb     string
}

const (
	// All is every namespace, and what is in none.
	All = "all"
	// Own is the namespace that Poolboot is installed in.
	Own = "own"
)

// SeenInIntegrationOnly are what the manager does in a workload cluster in test/suites/integration and not in
// test/suites/e2e: it lists what it watches where lists can't be streamed, and looks for the token of a host that asks
// twice.
var SeenInIntegrationOnly = []Right{
	{Where: All, Resource: "nodes", Verb: "list"},
	{Where: All, Resource: "certificatesigningrequests.certificates.k8s.io", Verb: "list"},
	{Where: "kube-system", Resource: "secrets", Verb: "get"},
	{Where: All, Resource: "validatingadmissionpolicies.admissionregistration.k8s.io", Verb: "list"},
	{Where: All, Resource: "validatingadmissionpolicybindings.admissionregistration.k8s.io", Verb: "list"},
	{Where: All, Resource: "clusterrolebindings.rbac.authorization.k8s.io", Verb: "list"},
	{Where: All, Resource: "clusterroles.rbac.authorization.k8s.io", Verb: "list"},
	{Where: "kube-system", Resource: "roles.rbac.authorization.k8s.io", Verb: "list"},
	{Where: "kube-system", Resource: "rolebindings.rbac.authorization.k8s.io", Verb: "list"},
}

// String is the right as kubectl auth can-i is asked for it.
func (r Right) String() string { return r.Verb + " " + r.Resource + " (" + r.Where + ")" }

// resource is a resource as a Right names it.
func resource(group, name, subresource string) string {
	return strings.TrimSuffix(schema.GroupResource{Group: group, Resource: name}.String()+"/"+subresource, "/")
}

var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z, ]+) \\| ([a-z-]+) \\| (\\S.*) \\|$")

// Documented are the rights in the table below a heading of docs/security.md, each row of which must say what they are
// for.
func Documented(heading string) (rights []Right, err error) {
	document, err := os.ReadFile("../../../docs/security.md")
	if err != nil {
		return nil, err
	}
	_, section, found := strings.Cut(string(document), "\n### "+heading+"\n")
	if !found {
		return nil, fmt.Errorf("docs/security.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	rows := row.FindAllStringSubmatch(section, -1)
	if lines := strings.Count(section, "\n|"); lines != len(rows)+2 {
		return nil, fmt.Errorf("docs/security.md, %s: %d of %d lines of the table can be read", heading, len(rows), lines-2)
	}
	for _, cells := range rows {
		for verb := range strings.SplitSeq(cells[2], ", ") {
			rights = append(rights, Right{Where: cells[3], Resource: cells[1], Verb: verb})
		}
	}
	return rights, nil
}

// Granted are the rights that the objects of an installable set give a ServiceAccount: those of the ClusterRole and the
// Role of its name.
func Granted(objects []unstructured.Unstructured, account string) (rights []Right, err error) {
	for _, object := range objects {
		where, is := map[string]string{"ClusterRole": All, "Role": Own}[object.GetKind()]
		if !is || object.GetName() != account {
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
						rights = append(rights, Right{Where: where, Resource: resource(group, name, subresource), Verb: verb})
					}
				}
			}
		}
	}
	return rights, nil
}

// UsedAtHome are the rights that a program has used in the management cluster, by the role that allowed each request,
// and its requests that were refused for want of one. What tests ask for in its place is not among them.
func UsedAtHome(plane *controlplane.ControlPlane, program string) (used []Right, refused []string, err error) {
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
		case decision != "allow": // nobody came to ask: there were too many requests, or the client had gone
			return
		case strings.Contains(reason, `ClusterRoleBinding "`+program+`"`):
			where = All
		}
		used = append(used, Right{Where: where, Resource: resource(r.Object.APIGroup, r.Object.Resource, r.Object.Subresource), Verb: r.Verb})
	})
	return distinct(used), refused, err
}

// UsedAway are the rights that the manager has used in a workload cluster, by its user agent: it has the rights of
// Cluster API's kubeconfig there.
func UsedAway(plane *controlplane.ControlPlane) (used []Right, err error) {
	err = plane.EachRequest(func(r controlplane.Request) {
		if !strings.Contains(r.UserAgent, " "+Manager+" ") || r.Object.Resource == "" {
			return
		}
		where := r.Object.Namespace
		if where == "" {
			where = All
		}
		used = append(used, Right{Where: where, Resource: resource(r.Object.APIGroup, r.Object.Resource, r.Object.Subresource), Verb: r.Verb})
	})
	return distinct(used), err
}

func distinct(rights []Right) []Right {
	slices.SortFunc(rights, func(a, b Right) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(rights)
}
