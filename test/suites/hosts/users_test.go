package hosts_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// usersOf returns a MachineConfig of a role with users.
func usersOf(role string, passwd map[string]any) poolv1.MachineConfig {
	return poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "99-" + role + "-ssh", Labels: map[string]string{"role": role}},
		Spec: poolv1.MachineConfigSpec{Config: &runtime.RawExtension{
			Raw: document(map[string]any{"passwd": passwd})}},
	}
}

func poolOf(role string) poolv1.MachineConfigPool {
	return poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}, Spec: poolv1.MachineConfigPoolSpec{
		PoolRole: role, MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}}
}

var _ = Describe("The users of a pool", func() {
	It("exist on its hosts, with the keys, passwords and groups of the pool worker and of the pool", func(ctx SpecContext) {
		configs := []poolv1.MachineConfig{
			usersOf("worker", map[string]any{"users": []any{
				map[string]any{"name": "core", "passwordHash": "$6$of$worker", "sshAuthorizedKeys": []any{"ssh-ed25519 AAAA everywhere"}}}}),
			usersOf("infra", map[string]any{
				"groups": []any{map[string]any{"name": "operators", "gid": 3000}},
				"users": []any{
					map[string]any{"name": "core", "passwordHash": "$6$of$infra", "groups": []any{"operators"},
						"sshAuthorizedKeys": []any{"ssh-ed25519 BBBB infra", "ssh-ed25519 AAAA everywhere"}},
					map[string]any{"name": "ops", "uid": 2000, "noCreateHome": true, "groups": []any{"operators"}},
				}}),
		}
		rendered, err := pool.Render("infra", []poolv1.MachineConfigPool{poolOf("worker"), poolOf("infra")}, configs)
		Expect(err).NotTo(HaveOccurred())
		served, err := pool.Served(rendered.Name, rendered.Spec)
		Expect(err).NotTo(HaveOccurred())

		h := newHostWithUserData(newRack(ctx), "host-0", baremetal.KubeletImage, served)
		Expect(h.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, h)

		Expect(h.Run(ctx, "cat", "/home/core/.ssh/authorized_keys.d/ignition")).To(And(
			ContainSubstring("ssh-ed25519 AAAA everywhere\n"), ContainSubstring("ssh-ed25519 BBBB infra\n")))
		Expect(h.Run(ctx, "getent", "shadow", "core", "ops")).To(And(ContainSubstring("core:$6$of$infra:"), ContainSubstring("ops:*:")))
		Expect(h.Run(ctx, "id", "ops")).To(ContainSubstring("uid=2000(ops)"))
		Expect(h.Run(ctx, "getent", "group", "operators")).To(Equal("operators:x:3000:core,ops\n"))
	}, SpecTimeout(3*time.Minute))
})
