package convert

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// newMachineConfiguration returns OpenShift's MachineConfiguration with this spec in YAML's flow style.
func newMachineConfiguration(spec string) string {
	return "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata:\n  name: cluster\nspec: {" + spec + "}\nstatus: {nodeDisruptionPolicyStatus: {}}\n"
}

var _ = Describe("convert, of node disruption policies", func() {
	converting := func(documents ...string) clitest.Result {
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", documents...), "--cluster", "infra-1", "-n", "edge")
	}

	It("gives them to the pool worker, from which all pools inherit them", func() {
		out := clitest.ExpectSuccess(converting(clitest.OpenShiftInfra, strings.Replace(clitest.OpenShiftWorker, "  configuration: {}\n", "", 1), newMachineConfiguration(`nodeDisruptionPolicy: {
			files: [{path: /etc/a/, actions: [{type: DaemonReload}, {type: Reload, reload: {serviceName: crio.service}}]}, {path: /etc/b, actions: []}],
			units: [{name: a.service, actions: [{type: Restart, restart: {serviceName: a.service}}]}], sshkey: {actions: [{type: Drain}]}}`)))
		worker, infra, found := strings.Cut(out, "---\n")
		Expect(found).To(BeTrue())
		Expect(worker).To(ContainSubstring(`  updates:
    disruptionPolicy:
      files:
      - actions:
        - type: DaemonReload
        - type: Reload
          unit: crio.service
        path: /etc/a
      - actions:
        - type: None
        path: /etc/b
      sshKeys:
        actions:
        - type: Drain
      units:
      - actions:
        - type: Restart
          unit: a.service
        name: a.service
`))
		Expect(infra).NotTo(ContainSubstring("updates:"))
		Expect(runWithInput(out, "convert", "-f", "-", "--cluster", "infra-1", "-n", "edge").Out).To(Equal(out))
	})

	It("gives them to the pool of the control plane too, which inherits nothing", func() {
		out := clitest.ExpectSuccess(converting(clitest.OpenShiftMaster, strings.Replace(clitest.OpenShiftWorker, "  configuration: {}\n", "", 1), newMachineConfiguration("nodeDisruptionPolicy: {units: [{name: a.service, actions: []}]}")))
		Expect(strings.Count(out, "    disruptionPolicy:\n      units:\n")).To(Equal(2))
	})

	It("gives worker the policy for disks that OpenShift's overrides are, and warns if they are not for all of them", func() {
		r := converting(clitest.OpenShiftInfra, clitest.OpenShiftWorker, newMachineConfiguration("irreconcilableValidationOverrides: {storage: [Disks, FileSystems, Raid]}"))
		Expect(r.Out).To(ContainSubstring("  updates:\n    diskPolicy: NewHostsOnly\n"))
		Expect(r.ErrOut).To(BeEmpty())
		r = converting(clitest.OpenShiftWorker, newMachineConfiguration("irreconcilableValidationOverrides: {storage: [Disks]}"))
		Expect(r.Out).To(ContainSubstring("diskPolicy: NewHostsOnly"))
		Expect(r.ErrOut).To(MatchRegexp(`warning: .*MachineConfiguration "cluster": spec.irreconcilableValidationOverrides.storage has only Disks, and spec.updates.diskPolicy NewHostsOnly is for disks, RAID, LUKS and file systems together`))
	})

	DescribeTable("changes nothing without one",
		func(spec string) {
			r := converting(clitest.OpenShiftWorker, clitest.OpenShiftInfra, newMachineConfiguration(spec))
			Expect(r.ErrOut).To(BeEmpty())
			Expect(r.Out).NotTo(ContainSubstring("updates:"))
		},
		Entry("at all", ""),
		Entry("but an empty list for SSH keys, which means the default", "nodeDisruptionPolicy: {sshkey: {actions: []}}"),
	)

	DescribeTable("warns of what it leaves out",
		func(spec, warning string) {
			r := converting(clitest.OpenShiftWorker, clitest.OpenShiftInfra, newMachineConfiguration(spec))
			Expect(r.Code).To(BeZero())
			Expect(r.ErrOut).To(ContainSubstring(warning))
		},
		Entry("a path that matches nothing in OpenShift", "nodeDisruptionPolicy: {files: [{path: /, actions: [{type: None}]}]}", `spec.nodeDisruptionPolicy.files[0].path is left out`),
		Entry("a relative path", "nodeDisruptionPolicy: {files: [{path: etc, actions: [{type: None}]}]}", `"etc" matches none`),
		Entry("other fields", "managedBootImages: {machineManagers: [{resource: machinesets}]}", `warning: MachineConfiguration "cluster": spec.managedBootImages is left out: Poolboot does not have this field`),
	)

	DescribeTable("refuses",
		func(why string, documents ...string) {
			clitest.ExpectError(converting(append(documents, clitest.OpenShiftInfra, clitest.OpenShiftWorker)...), 1, why)
		},
		Entry("several", `MachineConfiguration "other": the files contain several`, newMachineConfiguration(""), strings.Replace(newMachineConfiguration(""), "cluster", "other", 1)),
		Entry("one that is given twice", `MachineConfiguration "cluster" is given twice`, newMachineConfiguration(""), newMachineConfiguration("logLevel: Debug")),
		Entry("an invalid one", `MachineConfiguration "cluster": spec.nodeDisruptionPolicy.files[0].actions: None and Reboot must be the only action`,
			newMachineConfiguration("nodeDisruptionPolicy: {files: [{path: /a, actions: [{type: None}, {type: Drain}]}]}")),
		Entry("two for the same path", `files[1].path: Duplicate value: "/a"`,
			newMachineConfiguration("nodeDisruptionPolicy: {files: [{path: /a, actions: [{type: None}]}, {path: /a/, actions: [{type: None}]}]}")),
	)
})
