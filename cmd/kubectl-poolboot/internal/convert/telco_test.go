package convert

import (
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// telcoDropin has the command by which telco hosts start a service in a mount namespace.
const telcoDropin = `            [Unit]
            Wants=container-mount-namespace.service
            After=container-mount-namespace.service
            [Service]
            ExecStartPre=/usr/local/bin/extractExecStart %n /%t/%N-execstart.env ORIG_EXECSTART
            EnvironmentFile=-/%t/%N-execstart.env
            ExecStart=
            ExecStart=bash -c "nsenter --mount=%t/container-mount-namespace/mnt \
                ${ORIG_EXECSTART} --housekeeping-interval=30s"
`

// telcoWrapper is its command as spec.kubelet.wrapper.
const telcoWrapper = "/usr/bin/nsenter --mount=/run/container-mount-namespace/mnt"

// otherTelcoDropin has the same with another namespace.
var otherTelcoDropin = strings.ReplaceAll(telcoDropin, "%t/container-mount-namespace/mnt", "/run/kubens/mnt")

// newTelcoConfig returns an OpenShift MachineConfig of a role whose drop-in starts the kubelet in a mount namespace.
func newTelcoConfig(name, role, dropin string) string {
	return `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: ` + name + `, labels: {machineconfiguration.openshift.io/role: ` + role + `}}
spec:
  config:
    ignition: {version: 3.2.0}
    systemd:
      units:
      - name: kubelet.service
        dropins:
        - name: 90-container-mount-namespace.conf
          contents: |
` + dropin
}

var _ = Describe("convert, of MachineConfigs for telco hosts", func() {
	converting := func(documents ...string) clitest.Result {
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", documents...), "--cluster", "infra-1", "-n", "edge")
	}

	It("names what has no effect on hosts with containerd", func() {
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-crio, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.2.0}
    storage: {files: [{path: /etc/crio/crio.conf.d/99-runtimes.conf, contents: {source: "data:,"}}]}
    systemd: {units: [{name: crio.service, dropins: [{name: a.conf, contents: "[Service]"}]}]}
`)
		r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--container-runtime", "containerd")
		const why = " has no effect: hosts with containerd do not have CRI-O: write the setting for containerd, in /etc/containerd/conf.d/*.toml or in a drop-in of containerd.service\n"
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal(`warning: MachineConfig "50-crio": spec.config.storage.files[0]: /etc/crio/crio.conf.d/99-runtimes.conf` + why +
			`warning: MachineConfig "50-crio": spec.config.systemd.units[0]: crio.service` + why))
		Expect(runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge").ErrOut).To(BeEmpty())
	})

	It("names files, file systems and fields that containerd and its images do not have, and partitions without a number", func() {
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-disk, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  kernelType: realtime
  config:
    ignition: {version: 3.2.0}
    storage:
      disks: [{device: /dev/vda, partitions: [{label: containers, startMiB: 20000, sizeMiB: 10000}, {number: 6, sizeMiB: 1000}]}]
      filesystems: [{device: /dev/disk/by-partlabel/containers, path: /var/lib/containers, format: xfs}]
      files:
      - {path: /etc/containers/registries.conf.d/50-mirror.conf, contents: {source: "data:,"}}
      - {path: /etc/containers/policy.json, contents: {source: "data:,"}}
    systemd: {units: [{name: var-lib-containers.mount, enabled: true, contents: "[Mount]\nWhat=/dev/vda5\nWhere=/var/lib/containers\n[Install]\nWantedBy=local-fs.target"}]}
`)
		const partition = "spec.config.storage.disks[0].partitions[0] has no number: after a power loss, Ignition creates it again: set number, "
		r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--container-runtime", "containerd")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(strings.Split(strings.TrimSpace(r.ErrOut), "\n")).To(HaveExactElements(
			ContainSubstring("spec.kernelType and spec.extensions need rpm-ostree, which images with containerd rarely have: install the kernel"),
			ContainSubstring(partition),
			ContainSubstring("storage.filesystems[0]: /var/lib/containers has no effect: containerd stores images and containers in /var/lib/containerd: use this path"),
			ContainSubstring("storage.files[0]: /etc/containers/registries.conf.d/50-mirror.conf has no effect: containerd does not read this file: write /etc/containerd/certs.d/HOST/hosts.toml"),
			ContainSubstring("storage.files[1]: /etc/containers/policy.json has no effect: containerd verifies no signatures: verify them in the API server"),
			ContainSubstring("systemd.units[0]: var-lib-containers.mount has no effect: containerd stores"),
		))
		Expect(strings.Split(strings.TrimSpace(runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge").ErrOut), "\n")).To(
			HaveExactElements(ContainSubstring(partition)))
	})

	It("does not warn of the kernel that images have anyway", func() {
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-kernel, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {kernelType: default, kernelArguments: [nosmt]}
`)
		Expect(runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--container-runtime", "containerd").ErrOut).To(BeEmpty())
	})

	It("moves the command that starts the kubelet in a mount namespace to the pool", func() {
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, newTelcoConfig("50-ran", "worker", telcoDropin))
		r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(HavePrefix(`note: MachineConfig "50-ran": spec.config.systemd.units[0].dropins[0].contents: ExecStart of the drop-in 90-container-mount-namespace.conf of kubelet.service ` +
			`becomes spec.kubelet.wrapper of the pool worker. The container runtime must start in the same namespace`))
		Expect(r.Out).To(ContainSubstring("  kubelet:\n    wrapper:\n    - /usr/bin/nsenter\n    - --mount=/run/container-mount-namespace/mnt\n"))
		Expect(r.Out).To(ContainSubstring("After=container-mount-namespace.service\n"))
		Expect(r.Out).To(ContainSubstring(`Environment="KUBELET_EXTRA_ARGS=--housekeeping-interval=30s"`))
		Expect(r.Out).NotTo(Or(ContainSubstring("ExecStart"), ContainSubstring("execstart")))

		By("rendering the result")
		rendered := clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("edge.yaml", r.Out), "--pool", "worker"))
		Expect(rendered).To(ContainSubstring("20-poolboot-wrapper.conf"))
	})

	DescribeTable("keeps the flags of the command",
		func(command, flags string) {
			r := converting(clitest.OpenShiftWorker, newTelcoConfig("50-ran", "worker", "            [Service]\n            ExecStart=\n            "+command+"\n"))
			Expect(r.Code).To(BeZero(), r.ErrOut)
			Expect(r.Out).To(ContainSubstring(`Environment="KUBELET_EXTRA_ARGS=` + flags + `"`))
		},
		Entry(nil, "ExecStart=/usr/bin/nsenter --mount=/run/a ${ORIG_EXECSTART} --v 4 --oom-score-adj -999", "--v 4 --oom-score-adj -999"),
		Entry(nil, "ExecStart=/bin/sh -c 'exec /usr/bin/nsenter --mount=/run/a $ORIG_EXECSTART  --feature-gates=A=true,B=false '", "--feature-gates=A=true,B=false"),
	)

	It("warns if another drop-in sets the flags of the kubelet too", func() {
		own := "            [Service]\n            # KUBELET_EXTRA_ARGS=\n            Environment=KUBELET_EXTRA_ARGS=--v=2\n"
		r := converting(clitest.OpenShiftWorker, newTelcoConfig("50-ran", "worker", telcoDropin+own), newTelcoConfig("60-mine", "worker", own))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		const flags = `warning: MachineConfig "50-ran": spec.config.systemd.units[0].dropins[0].contents: the flags in ExecStart of its drop-in 90-container-mount-namespace.conf of kubelet.service become KUBELET_EXTRA_ARGS, which `
		Expect(r.ErrOut).To(And(ContainSubstring(flags+"the drop-in sets too"), ContainSubstring(flags+`90-container-mount-namespace.conf of MachineConfig "60-mine" sets too`)))
		Expect(converting(clitest.OpenShiftWorker, newTelcoConfig("50-ran", "worker", telcoDropin)).ErrOut).NotTo(ContainSubstring("warning"))
	})

	It("names the flags of a drop-in that loses against one with a later name, in the pools where it does", func() {
		first := strings.Replace(newTelcoConfig("50-ran", "worker", telcoDropin), "90-container", "10-container", 1)
		second := newTelcoConfig("60-later", "infra", strings.Replace(telcoDropin, " --housekeeping-interval=30s", "", 1))
		r := converting(clitest.OpenShiftWorker, strings.ReplaceAll(clitest.OpenShiftWorker, "worker", "infra"), first, second)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).To(ContainSubstring("--housekeeping-interval=30s"))
		Expect(r.ErrOut).To(ContainSubstring(`of MachineConfig "60-later" wins in the pool infra, as in OpenShift. Its flags --housekeeping-interval=30s are KUBELET_EXTRA_ARGS in this pool too`))
	})

	It("keeps lines that do more than read the kubelet's original command, and sets the flags in their section", func() {
		r := converting(clitest.OpenShiftWorker, newTelcoConfig("50-ran", "worker", `            [Service]
            ExecStartPre=/bin/sh -c 'modprobe sctp; echo $ORIG_EXECSTART'
            EnvironmentFile=/etc/my-execstart.env
            ExecStart=
            ExecStart=nsenter --mount=/run/a ${ORIG_EXECSTART} --v=4
            [Unit]
            After=a.service
`))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).To(MatchRegexp(`ExecStartPre=.*modprobe sctp.*\n +EnvironmentFile=/etc/my-execstart.env\n +Environment="KUBELET_EXTRA_ARGS=--v=4"\n +\[Unit\]`))
		Expect(r.ErrOut).To(And(ContainSubstring("ExecStartPre of its drop-in 90-container-mount-namespace.conf of kubelet.service is kept"), ContainSubstring("EnvironmentFile of its drop-in")))
	})

	It("makes the unit that keeps the mount namespace share the network namespaces of Pods, as that in the documentation", func() {
		namespace := func(before string) string {
			return `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-ran, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.2.0}
    systemd:
      units:
      - name: container-mount-namespace.service
        contents: |
          [Service]
          Type=oneshot
          RemainAfterExit=yes
          RuntimeDirectory=container-mount-namespace
          Environment=BIND_POINT=%t/container-mount-namespace/mnt
          ExecStartPre=touch ${BIND_POINT}
` + before + `          ExecStart=unshare --mount=${BIND_POINT} --propagation slave mount --make-rshared /
          ExecStop=umount -R ${RUNTIME_DIRECTORY}
`
		}
		r := converting(clitest.OpenShiftWorker, namespace(""))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal(`note: MachineConfig "50-ran": spec.config.systemd.units[0].contents: container-mount-namespace.service first makes /run/netns a mount: ` +
			`otherwise, the first "ip netns add" on a host hides the network namespaces of its Pods from the kubelet` + "\n"))
		Expect(r.Out).To(MatchRegexp(`ExecStartPre=touch \S+\n +` + regexp.QuoteMeta(sharesNetworkNamespaces) + `\n +ExecStart=unshare`))
		documented, err := os.ReadFile(sourcetree.Path("docs", "pools.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(documented)).To(MatchRegexp(regexp.QuoteMeta(sharesNetworkNamespaces) + `\n.*\n +ExecStart=.*unshare`))

		By("leaving a unit that does so already")
		Expect(converting(clitest.OpenShiftWorker, namespace("          "+sharesNetworkNamespaces+"\n")).ErrOut).To(BeEmpty())
	})

	It("refuses commands that it does not know, and names one that no pool gets", func() {
		for _, command := range []string{
			"ExecStart=/usr/bin/kubelet --v=4",
			"ExecStart=/bin/sh -c \"nsenter --mount=/run/a /usr/bin/kubelet\"",
			"ExecStart=nsenter --mount=%h/$A ${ORIG_EXECSTART}",
			"ExecStart=nsenter --mount=/run/a ${ORIG_EXECSTART}\n            ExecStart=/bin/true",
			"ExecStart=bash -c \"nsenter --mount=/run/a ${ORIG_EXECSTART} --v=4; rm -rf /\"",
			"ExecStart=bash -c \"nsenter --mount=/run/a ${ORIG_EXECSTART} --v=4 && touch /a\"",
			"ExecStart=bash -c \"nsenter --mount=/run/a ${ORIG_EXECSTART} --v=$(id)\"",
			"ExecStart=bash -c \"nsenter --mount=/run/a ${ORIG_EXECSTART} --v=4 /tmp/a\"",
			"ExecStart=bash -c \"nsenter --mount=/run/a ${ORIG_EXECSTART} /tmp/a\"",
			"ExecStart=bash -c \"touch /a; nsenter --mount=/run/a ${ORIG_EXECSTART}\"",
		} {
			r := converting(clitest.OpenShiftWorker, newTelcoConfig("50-ran", "worker", "            [Service]\n            ExecStart=\n            "+command+"\n"))
			Expect(r.Code).To(Equal(1), command)
			Expect(r.ErrOut).To(ContainSubstring("set spec.kubelet.wrapper of the MachineConfigPool"))
		}
		By("naming the setting if no pool of the files gets it")
		r := converting(clitest.OpenShiftWorker, newTelcoConfig("50-ran", "ran", telcoDropin))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(HavePrefix(`warning: MachineConfig "50-ran": spec.config.systemd.units[0].dropins[0].contents: no pool of the files selects it, and ExecStart of its drop-in 90-container-mount-namespace.conf ` +
			`of kubelet.service is left out: set spec.kubelet.wrapper: [/usr/bin/nsenter, --mount=/run/container-mount-namespace/mnt] in the pools that will select it`))
		Expect(r.Out).NotTo(ContainSubstring("ExecStart"))
	})

	DescribeTable("uses the command of the drop-in that wins in OpenShift",
		func(laterRole, laterDropin, later, worker, infra string) {
			over := strings.Replace(newTelcoConfig("60-later", laterRole, later), "90-container-mount-namespace.conf", laterDropin, 1)
			r := converting(clitest.OpenShiftWorker, strings.ReplaceAll(clitest.OpenShiftWorker, "worker", "infra"), newTelcoConfig("70-ran", "worker", telcoDropin), over)
			Expect(r.Code).To(BeZero(), r.ErrOut)
			Expect(r.ErrOut).To(MatchRegexp(`warning: MachineConfig "(70-ran|60-later)": \S+: its drop-in \S+ of kubelet.service starts the kubelet by ".+": the drop-in \S+ of MachineConfig "(60-later|70-ran)" wins`))
			wrappers := map[string]string{}
			for document := range strings.SplitSeq(r.Out, "\n---\n") {
				var p poolv1.MachineConfigPool
				Expect(yaml.Unmarshal([]byte(document), &p)).To(Succeed())
				wrappers[p.Name] = strings.Join(p.Spec.Kubelet.Wrapper, " ")
			}
			Expect(wrappers).To(And(HaveKeyWithValue("worker", worker), HaveKeyWithValue("infra", infra)))
		},
		Entry("the later MachineConfig, for one name", "worker", "90-container-mount-namespace.conf", otherTelcoDropin, telcoWrapper, ""),
		Entry("the MachineConfig of the custom pool, for one name", "infra", "90-container-mount-namespace.conf", otherTelcoDropin, telcoWrapper, "/usr/bin/nsenter --mount=/run/kubens/mnt"),
		Entry("the MachineConfig of the custom pool without the command, for one name", "infra", "90-container-mount-namespace.conf", "            [Unit]\n            After=a.service\n", telcoWrapper, "/usr/bin/env"),
		Entry("the drop-in with the later name", "worker", "91-a.conf", otherTelcoDropin, "/usr/bin/nsenter --mount=/run/kubens/mnt", ""),
		Entry("the drop-in with the later name, and not that of the custom pool", "infra", "10-a.conf", otherTelcoDropin, telcoWrapper, ""),
	)

	DescribeTable("names entries without effect, and what to do instead",
		func(ignition string, words ...string) {
			r := converting(clitest.OpenShiftWorker, `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.2.0}, `+ignition+`}}`)
			Expect(r.Code).To(BeZero(), r.ErrOut)
			if len(words) == 0 {
				Expect(r.ErrOut).To(BeEmpty())
				return
			}
			Expect(r.ErrOut).To(MatchRegexp(`^warning: MachineConfig "50-a": spec[.]config[.]\S+: ` + words[0] + " has no effect: "))
			for _, word := range words {
				Expect(r.ErrOut).To(ContainSubstring(word))
			}
		},
		Entry("the unit with the namespace of the kubelet", `systemd: {units: [{name: kubens.service, enabled: true}]}`, "kubens.service", "spec.kubelet.wrapper"),
		Entry("a user's own unit of this name", `systemd: {units: [{name: kubens.service, enabled: true, contents: "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]}`),
		Entry("the unit that selects the address", `systemd: {units: [{name: nodeip-configuration.service, enabled: true}]}`, "nodeip-configuration.service", "default route"),
		Entry("its settings", `storage: {files: [{path: /etc/default/nodeip-configuration, contents: {source: "data:,A"}}]}`, "/etc/default/nodeip-configuration", "network configuration"),
		Entry("workload pinning of the kubelet", `storage: {files: [{path: /etc/kubernetes/openshift-workload-pinning, contents: {source: "data:,A"}}]}`,
			"/etc/kubernetes/openshift-workload-pinning", "reservedSystemCPUs"),
		Entry("workload pinning of CRI-O", `storage: {files: [{path: /etc/crio/crio.conf.d/01-workload-pinning, contents: {source: "data:,A"}}]}`,
			"/etc/crio/crio.conf.d/01-workload-pinning", "reservedSystemCPUs"),
		Entry("workload partitioning of CRI-O", `storage: {files: [{path: /etc/crio/crio.conf.d/99-workload-partitioning.conf, contents: {source: "data:,A"}}]}`,
			"/etc/crio/crio.conf.d/99-workload-partitioning.conf", "reservedSystemCPUs"),
		Entry("another drop-in of CRI-O", `storage: {files: [{path: /etc/crio/crio.conf.d/01-pids, contents: {source: "data:,A"}}]}`),
		Entry("the log level of the kubelet", `systemd: {units: [{name: kubelet.service, dropins: [{name: 10-a.conf, contents: "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=4\"\n"}]}]}`,
			"KUBELET_LOG_LEVEL", "logging.verbosity"),
		Entry("the log level of the kubelet in a file", `storage: {files: [{path: /etc/systemd/system/kubelet.service.d/10-a.conf, contents: {source: "data:,%5BService%5D%0AEnvironment=KUBELET_LOG_LEVEL=4%0A"}}]}`,
			"KUBELET_LOG_LEVEL", "logging.verbosity"),
		Entry("the log level of the kubelet in a gzip file", `storage: {files: [{path: /etc/systemd/system/kubelet.service.d/10-a.conf, contents: {compression: gzip, source: "data:;base64,H4sIAAAAAAACA4sOTi0qy0xOjeVyzSvLLMrPy03NK7H1DnVy9XENiffxd4/3cQ1z9bE14QIAdtHqMioAAAA="}}]}`,
			"KUBELET_LOG_LEVEL", "logging.verbosity"),
		Entry("the log level in a comment", `systemd: {units: [{name: kubelet.service, dropins: [{name: 10-a.conf, contents: "[Service]\n# KUBELET_LOG_LEVEL=4\n"}]}]}`),
		Entry("a unit that the target of OpenShift requires",
			`systemd: {units: [{name: mine.service, enabled: true, contents: "[Service]\nExecStart=/bin/true\n[Install]\nRequiredBy=kubelet-dependencies.target\n"}]}`),
	)

	It("names the pools in which to set something instead of an entry without effect", func() {
		pinning := func(role string) string {
			return `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: ` + role + `}}
spec: {config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/kubernetes/openshift-workload-pinning, contents: {source: "data:,A"}}]}}}`
		}
		ran := strings.ReplaceAll(clitest.OpenShiftWorker, "worker", "ran")
		Expect(converting(clitest.OpenShiftWorker, ran, pinning("ran")).ErrOut).To(ContainSubstring("in spec.kubelet.configuration of the pool ran, and CPUAffinity"))
		Expect(converting(clitest.OpenShiftWorker, ran, pinning("edge")).ErrOut).To(ContainSubstring("in spec.kubelet.configuration of the pools that will select this MachineConfig, and CPUAffinity"))
	})

	It("names an item by its index in the file, also behind one that is null", func() {
		r := converting(clitest.OpenShiftWorker, `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.2.0}, storage: {files: [null, {path: /etc/openshift/kubelet.conf.d/20-a.conf, contents: {source: "data:,"}}]}}}`)
		Expect(r.ErrOut).To(And(ContainSubstring("spec.config.storage.files[0].path: path not specified"),
			ContainSubstring("spec.config.storage.files[1]: /etc/openshift/kubelet.conf.d/20-a.conf becomes")))
	})

	It("moves drop-ins of the kubelet's configuration to the directory that the kubelet reads", func() {
		r := converting(clitest.OpenShiftWorker, `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/openshift/kubelet.conf.d/20-a.conf, contents: {source: "data:,apiVersion:%20kubelet.config.k8s.io/v1beta1%0Akind:%20KubeletConfiguration%0AmaxPods:%20100"}}]}}}`)
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal(`note: MachineConfig "50-a": spec.config.storage.files[0]: /etc/openshift/kubelet.conf.d/20-a.conf becomes /etc/kubernetes/kubelet.conf.d/20-a.conf, which the kubelet reads` + "\n"))
		Expect(r.Out).To(ContainSubstring("path: /etc/kubernetes/kubelet.conf.d/20-a.conf"))
	})
})
