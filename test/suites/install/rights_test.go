package install_test

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

// right is a set of verbs on a resource. Without a namespace it is for all namespaces.
type right struct {
	group, resource, subresource string
	namespace, name              string
	verbs                        []string
}

var (
	readVerbs        = []string{"get", "list", "watch"}
	managerNamespace = "poolboot-system"
)

// newClientAs returns a client with the rights of a ServiceAccount or, if change is not nil, of a user with a changed
// copy of its ClusterRole.
func newClientAs(ctx context.Context, account string, change func(*rbacv1.PolicyRule)) client.Client {
	GinkgoHelper()
	user := "system:serviceaccount:" + managerNamespace + ":" + account
	if change != nil {
		granted := &rbacv1.ClusterRole{}
		Expect(k8sClient.Get(ctx, client.ObjectKey{Name: account}, granted)).To(Succeed())
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: account + "-"}}
		for _, rule := range granted.Rules {
			if change(&rule); len(rule.Verbs) > 0 {
				role.Rules = append(role.Rules, rule)
			}
		}
		Expect(k8sClient.Create(ctx, role)).To(Succeed())
		user = role.Name
		Expect(k8sClient.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})).To(Succeed())
	}
	config := rest.CopyConfig(controlPlane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	impersonator, err := client.New(config, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return impersonator
}

// newAdminNamed returns a client with the name of a ServiceAccount and all rights: only policies can refuse its
// requests.
func newAdminNamed(account string) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(controlPlane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + managerNamespace + ":" + account, Groups: []string{"system:masters"}}
	impersonator, err := client.New(config, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return impersonator
}

var _ = Describe("the ServiceAccounts", func() {
	expectAllowed := func(ctx SpecContext, account string, r right, allowed bool) {
		GinkgoHelper()
		for _, verb := range r.verbs {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + managerNamespace + ":" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + managerNamespace, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Name: r.name, Verb: verb,
				},
			}}
			Expect(k8sClient.Create(ctx, review)).To(Succeed())
			Expect(review.Status.Allowed).To(Equal(allowed), verb)
		}
	}

	DescribeTable("have exactly the documented rights", func(account, heading string) {
		documented, err := rights.Documented(heading)
		Expect(err).NotTo(HaveOccurred())
		granted, err := rights.Granted(components.Objs(), account)
		Expect(err).NotTo(HaveOccurred())
		Expect(granted).To(ConsistOf(documented))
	},
		Entry(nil, rights.Manager, "Rights of the manager"),
		Entry(nil, rights.ConfigServer, "Rights of the config server"),
	)

	// test/suites/integration/rights_test.go tests that the other rights are used.
	It("use the rights for leader election and protected metrics", func(ctx SpecContext) {
		requestMetrics(ctx, managerNamespace, rights.ConfigServer)
		Eventually(ctx, func() ([]rights.Right, error) {
			used, _, err := rights.UsedInManagement(controlPlane, rights.Manager)
			return used, err
		}).Should(ContainElements(
			rights.Right{Where: rights.All, Resource: "tokenreviews.authentication.k8s.io", Verb: "create"},
			rights.Right{Where: rights.All, Resource: "subjectaccessreviews.authorization.k8s.io", Verb: "create"},
			rights.Right{Where: rights.Own, Resource: "leases.coordination.k8s.io", Verb: "get"},
			rights.Right{Where: rights.Own, Resource: "leases.coordination.k8s.io", Verb: "create"},
			rights.Right{Where: rights.Own, Resource: "leases.coordination.k8s.io", Verb: "update"},
			rights.Right{Where: rights.Own, Resource: "events", Verb: "create"},
		))
	})

	It("need the rights that the API server requires for setting owner references", func(ctx SpecContext) {
		manager := newClientAs(ctx, rights.Manager, nil)
		namespace := newNamespace(ctx)
		name, err := pool.NameFor("worker", poolv1.MachineConfigSpec{})
		Expect(err).NotTo(HaveOccurred())
		pool := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: "worker"}}
		Expect(k8sClient.Create(ctx, pool)).To(Succeed())
		createOwned := func(by client.Client, group schema.GroupVersion, kind string, object client.Object) func() error {
			object.SetNamespace(namespace)
			object.SetName(name)
			object.SetLabels(map[string]string{poolv1.RenderedForLabel: "worker"})
			object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: group.String(), Kind: kind, Name: name, UID: "1", Controller: new(true), BlockOwnerDeletion: new(true)}})
			return func() error { return by.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll) }
		}
		for removed, request := range map[string]func(client.Client) func() error{
			"poolbootconfigs/finalizers": func(by client.Client) func() error {
				return createOwned(by, bootstrapv1.GroupVersion, "PoolbootConfig", &corev1.Secret{Type: clusterv1.ClusterSecretType})
			},
			"machineconfigpools/finalizers": func(by client.Client) func() error {
				return createOwned(by, poolv1.GroupVersion, "MachineConfigPool", &poolv1.MachineConfig{})
			},
			"machineconfigpools delete": func(by client.Client) func() error {
				return func() error {
					adopted := pool.DeepCopy()
					adopted.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: clusterv1.ClusterKind, Name: "edge", UID: "1"}}
					return by.Patch(ctx, adopted, client.MergeFrom(pool), client.DryRunAll)
				}
			},
		} {
			Eventually(ctx, request(manager)).Should(Succeed(), removed)
			resource, verb, _ := strings.Cut(removed, " ")
			Eventually(ctx, request(newClientAs(ctx, rights.Manager, func(rule *rbacv1.PolicyRule) {
				if slices.Contains(rule.Resources, resource) {
					rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return verb == "" || v == verb })
				}
			}))).Should(MatchError(ContainSubstring("cannot set ")), removed)
		}
		Eventually(ctx, func() error { return manager.Delete(ctx, pool, client.DryRunAll) }).Should(MatchError(ContainSubstring("cannot delete MachineConfigPools")))
	})

	DescribeTable("can't", func(ctx SpecContext, account string, r right) { expectAllowed(ctx, account, r, false) },
		Entry("read a cluster's Secrets", "poolboot-config-server", right{resource: "secrets", namespace: "default", verbs: readVerbs}),
		Entry("read all Secrets", "poolboot-config-server", right{resource: "secrets", verbs: readVerbs}),
		Entry("write its own Secrets", "poolboot-config-server", right{resource: "secrets", namespace: managerNamespace, verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("write a PoolbootConfig", "poolboot-config-server", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("admit a host", "poolboot-config-server", right{group: "poolboot.io", resource: "enrollments", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("write a MachineConfig", "poolboot-config-server", right{group: "poolboot.io", resource: "machineconfigs", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("read Machines", "poolboot-config-server", right{group: "cluster.x-k8s.io", resource: "machines", verbs: readVerbs}),

		Entry("replace or delete a Secret of a cluster", "poolboot-manager", right{resource: "secrets", namespace: "default", verbs: []string{"update", "delete"}}),
		Entry("replace a MachineConfig", "poolboot-manager", right{group: "poolboot.io", resource: "machineconfigs", verbs: []string{"update"}}),
		Entry("change a CRD of another provider", "poolboot-manager", right{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", name: "baremetalhosts.metal3.io", verbs: []string{"update", "patch"}}),
		Entry("change the status of a CRD of another provider", "poolboot-manager", right{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", subresource: "status", name: "baremetalhosts.metal3.io", verbs: []string{"update", "patch"}}),
		Entry("replace a PoolbootConfig, or delete many", "poolboot-manager", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", verbs: []string{"update", "deletecollection"}}),
		Entry("create, replace or delete a Machine", "poolboot-manager", right{group: "cluster.x-k8s.io", resource: "machines", verbs: []string{"create", "update", "delete"}}),
		Entry("create, replace or delete a host", "poolboot-manager", right{group: "metal3.io", resource: "baremetalhosts", verbs: []string{"create", "update", "delete"}}),
	)
})
