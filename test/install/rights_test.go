package install_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// right is a set of verbs on a resource: group/resource, or group/resource/subresource, with an empty group for Kubernetes'
// own. Without a namespace it is meant for all of them.
type right struct {
	group, resource, subresource string
	namespace                    string
	verbs                        []string
}

var (
	read = []string{"get", "list", "watch"}
	own  = "poolboot-system"
)

var _ = Describe("the ServiceAccounts", func() {
	may := func(ctx SpecContext, account string, r right, allowed bool) {
		GinkgoHelper()
		for _, verb := range r.verbs {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + own + ":" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + own, "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Group: r.group, Resource: r.resource, Subresource: r.subresource, Namespace: r.namespace, Verb: verb,
				},
			}}
			Expect(c.Create(ctx, review)).To(Succeed())
			Expect(review.Status.Allowed).To(Equal(allowed), verb)
		}
	}

	DescribeTable("may do what their program does", func(ctx SpecContext, account string, r right) { may(ctx, account, r, true) },
		Entry(nil, "poolboot-config-server", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", verbs: read}),
		Entry(nil, "poolboot-config-server", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", subresource: "status", verbs: []string{"patch"}}),
		Entry(nil, "poolboot-config-server", right{group: "pool.cluster.x-k8s.io", resource: "machineconfigs", verbs: read}),
		Entry(nil, "poolboot-config-server", right{group: "pool.cluster.x-k8s.io", resource: "enrolments", verbs: read}),
		Entry(nil, "poolboot-config-server", right{group: "pool.cluster.x-k8s.io", resource: "enrolments", subresource: "status", verbs: []string{"patch"}}),
		Entry(nil, "poolboot-config-server", right{resource: "secrets", namespace: own, verbs: read}),

		Entry(nil, "poolboot-manager", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", verbs: append(read, "create", "patch", "delete")}), // which: hosts_test.go
		Entry(nil, "poolboot-manager", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigtemplates", verbs: read}),
		Entry(nil, "poolboot-manager", right{group: "pool.cluster.x-k8s.io", resource: "enrolments", verbs: append(read, "create", "patch")}),
		Entry(nil, "poolboot-manager", right{group: "pool.cluster.x-k8s.io", resource: "enrolments", subresource: "status", verbs: []string{"patch"}}),
		Entry(nil, "poolboot-manager", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", subresource: "status", verbs: []string{"patch"}}),
		Entry(nil, "poolboot-manager", right{group: "pool.cluster.x-k8s.io", resource: "machineconfigpools", verbs: append(read, "patch")}),
		Entry(nil, "poolboot-manager", right{group: "pool.cluster.x-k8s.io", resource: "machineconfigpools", subresource: "status", verbs: []string{"patch"}}),
		Entry(nil, "poolboot-manager", right{group: "pool.cluster.x-k8s.io", resource: "machineconfigs", verbs: append(read, "create", "delete")}),
		Entry(nil, "poolboot-manager", right{group: "cluster.x-k8s.io", resource: "clusters", verbs: read}),
		Entry(nil, "poolboot-manager", right{group: "cluster.x-k8s.io", resource: "machines", verbs: read}),
		Entry(nil, "poolboot-manager", right{group: "infrastructure.cluster.x-k8s.io", resource: "metal3machines", verbs: read}),
		Entry(nil, "poolboot-manager", right{group: "metal3.io", resource: "baremetalhosts", verbs: append(read, "patch")}),
		Entry(nil, "poolboot-manager", right{group: "metal3.io", resource: "hardwaredata", verbs: read}),
		Entry(nil, "poolboot-manager", right{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}}),
		Entry(nil, "poolboot-manager", right{resource: "secrets", verbs: append(read, "create")}),
		Entry(nil, "poolboot-manager", right{resource: "secrets", namespace: own, verbs: []string{"patch", "delete"}}),
		Entry(nil, "poolboot-manager", right{group: "coordination.k8s.io", resource: "leases", namespace: own, verbs: []string{"get", "create", "update"}}),
	)

	DescribeTable("may do nothing that they should not", func(ctx SpecContext, account string, r right) { may(ctx, account, r, false) },
		Entry("read a cluster's Secrets", "poolboot-config-server", right{resource: "secrets", namespace: "default", verbs: read}),
		Entry("read all Secrets", "poolboot-config-server", right{resource: "secrets", verbs: read}),
		Entry("write its own Secrets", "poolboot-config-server", right{resource: "secrets", namespace: own, verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("write a PoolbootConfig", "poolboot-config-server", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("admit a host", "poolboot-config-server", right{group: "pool.cluster.x-k8s.io", resource: "enrolments", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("write a MachineConfig", "poolboot-config-server", right{group: "pool.cluster.x-k8s.io", resource: "machineconfigs", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("read Machines", "poolboot-config-server", right{group: "cluster.x-k8s.io", resource: "machines", verbs: read}),

		Entry("change a Secret of a cluster", "poolboot-manager", right{resource: "secrets", namespace: "default", verbs: []string{"update", "patch", "delete"}}),
		Entry("change a MachineConfig", "poolboot-manager", right{group: "pool.cluster.x-k8s.io", resource: "machineconfigs", verbs: []string{"update", "patch"}}),
		Entry("replace a PoolbootConfig, or delete many", "poolboot-manager", right{group: "bootstrap.cluster.x-k8s.io", resource: "poolbootconfigs", verbs: []string{"update", "deletecollection"}}),
		Entry("change a Machine", "poolboot-manager", right{group: "cluster.x-k8s.io", resource: "machines", verbs: []string{"create", "update", "patch", "delete"}}),
		Entry("make, replace or delete a host", "poolboot-manager", right{group: "metal3.io", resource: "baremetalhosts", verbs: []string{"create", "update", "delete"}}),
	)
})
