package diff

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("diff, of disks for new hosts only", func() {
	It("says which disks and mount units running hosts keep, and why", func() {
		host := clitest.PoolbootConfig("infra", "a", "node-a")
		record.RevokeToken(host)
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "rendered-a", Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}}
		host.Status.Boot.ServedConfiguration.Name, host.Status.Update.DesiredRevision = rendered.Name, strings.Repeat("0", 64)
		keeping := strings.Replace(clitest.Pool("infra-1", "worker"), "spec:\n", "spec:\n  updates: {diskPolicy: NewHostsOnly}\n", 1)
		r := runDiff(clitest.NewFakeConnection([]string{keeping, clitest.Pool("infra-1", "infra"), clitest.Config("51-infra", "infra", "{}")}, host, rendered),
			"-f", clitest.WriteFile("new.yaml", clitest.Config("51-infra", "infra", "{config: {ignition: {version: 3.2.0}, storage: {disks: [{device: /dev/sdb, wipeTable: true}], filesystems: [{device: /dev/sdb1, format: xfs}]}, systemd: {units: [{name: data.mount, enabled: true, contents: \"[Mount]\\nWhat=/dev/sdb1\\nWhere=/data\"}]}}}")))
		Expect(r.Out).To(And(ContainSubstring("Node node-a: None"), ContainSubstring(
			"  disks:    running hosts (1) keep these as installed (spec.updates.diskPolicy is NewHostsOnly): disk /dev/sdb,\n            filesystem /dev/sdb1, unit data.mount\n")))
	})
})
