package join_test

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	ignitionv30 "github.com/coreos/ignition/v2/config/v3_0"
	ignitionv30types "github.com/coreos/ignition/v2/config/v3_0/types"
	ignitionv35 "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/golden"
)

const tokenSecret = "0123456789abcdef"

var credential = join.Credential{ID: "abc123", Secret: tokenSecret}

func newInput(joinType bootstrapv1.JoinType) join.Input {
	newPool := func(role string, spec poolv1.MachineConfigPoolSpec) poolv1.MachineConfigPool {
		spec.PoolRole, spec.ClusterName = role, "edge"
		return poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: role}, Spec: spec}
	}
	restart := func(unit string) poolv1.DisruptionActions {
		return poolv1.DisruptionActions{{Type: poolv1.ActionRestart, Unit: poolv1.UnitName(unit)}}
	}
	pools := []poolv1.MachineConfigPool{
		newPool(poolv1.RoleWorker, poolv1.MachineConfigPoolSpec{Updates: poolv1.UpdateSettings{DisruptionPolicy: poolv1.DisruptionPolicy{
			Files: []poolv1.PathDisruptionPolicy{{Path: "/etc/chrony.conf", Actions: restart("chronyd.service")}},
		}}}),
		newPool("infra", poolv1.MachineConfigPoolSpec{Updates: poolv1.UpdateSettings{DisruptionPolicy: poolv1.DisruptionPolicy{
			Files: []poolv1.PathDisruptionPolicy{{Path: "/etc/app.conf", Actions: restart("app.service")}},
		}}}),
	}
	return join.Input{
		Config: &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "infra-boot", Annotations: map[string]string{bootstrapv1.PointerIDAnnotation: "1-2"}},
			Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{
				Join: bootstrapv1.Join{Type: joinType},
				ExtraConfig: &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{
					Raw: []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/rack","contents":{"source":"data:,12"}}]}}`),
				}},
			}},
		},
		Pool: &pools[1], Pools: pools,
		Rendered: assignment.RenderedConfig{Name: "rendered-infra-1", SHA512: strings.Repeat("a", 128)},
		Registration: registration.Registration{
			Name: "infra-x7k2p", ProviderID: "metal3://metal/rack1-u12/infra-m3m",
			Labels: map[string]string{"node-role.kubernetes.io/infra": "", "poolboot.io/pool": "infra"},
			Taints: []corev1.Taint{{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}},
		},
		Cluster: join.Cluster{Name: "edge", Server: "https://edge.example.com:6443", CA: []byte("the cluster's CA\n")},
		Offer: join.Offer{
			Agent: assignment.Agent{Version: "v0.1.0", Oldest: "v0.1.0", SHA512: map[string]string{
				"amd64": strings.Repeat("6", 128), "arm64": strings.Repeat("8", 128),
			}},
			ServerURL: "https://boot.example.com:9444", ServerCA: []byte("the server's CA\n"),
		},
	}
}

var joinTypes = []bootstrapv1.JoinType{bootstrapv1.JoinTypeKubelet, bootstrapv1.JoinTypeKubeadm}

func assignmentOf(in join.Input) assignment.Assignment {
	GinkgoHelper()
	document, err := join.Document(in)
	Expect(err).NotTo(HaveOccurred())
	a, err := assignment.Decode(document, assignment.Revision(document))
	Expect(err).NotTo(HaveOccurred())
	return a
}

func machineOf(a assignment.Assignment) ignition.Config {
	GinkgoHelper()
	machine, err := ignition.Parse(a.Machine)
	Expect(err).NotTo(HaveOccurred())
	return machine
}

func overlayOf(in join.Input, architecture string) ignition.Config {
	GinkgoHelper()
	machine, err := join.MachineOf(in, architecture)
	Expect(err).NotTo(HaveOccurred())
	overlay, err := machine.Overlay(credential)
	Expect(err).NotTo(HaveOccurred())
	return overlay
}

func pathsOf(config ignition.Config) (names []string) {
	for _, file := range config.Storage.Files {
		names = append(names, file.Path)
	}
	for _, unit := range config.Systemd.Units {
		names = append(names, unit.Name)
	}
	for _, directory := range config.Storage.Directories {
		names = append(names, directory.Path)
	}
	return names
}

func textOf(config ignition.Config, name string) string {
	GinkgoHelper()
	for _, file := range config.Storage.Files {
		if file.Path == name {
			contents, err := ignition.Contents(file.Contents, 1<<20)
			Expect(err).NotTo(HaveOccurred())
			return string(contents)
		}
	}
	Fail(name + " is missing")
	return ""
}

var _ = Describe("The assignment of a host", func() {
	It("names the rendered config by the hash of what the config server serves", func() {
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rendered-infra-1"},
			Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}
		reference, err := join.RenderedOf(rendered)
		Expect(err).NotTo(HaveOccurred())
		Expect(reference.Name).To(Equal("rendered-infra-1"))
		served, err := pool.Served(rendered.Name, rendered.Spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(reference.SHA512).To(Equal(fmt.Sprintf("%x", sha512.Sum512(served))))
	})

	It("contains what the pool says about updates, with defaults and the policies of worker", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		a := assignmentOf(in)
		Expect(a.Node).To(Equal("infra-x7k2p"))
		Expect(a.Config).To(Equal(in.Rendered))
		Expect([]int32{a.MinReadySeconds, a.ReadyDeadlineSeconds}).To(Equal([]int32{10, 1200}))
		Expect(a.RepairsDrift).To(BeFalse())
		Expect(a.RebootMethod).To(Equal(update.FullReboot))
		Expect(a.Force).To(BeEmpty())
		Expect(a.Agent).To(HaveValue(Equal(in.Offer.Agent)))
		Expect(a.Policy.Paths).To(And(HaveKey("/etc/chrony.conf"), HaveKey("/etc/app.conf"), HaveKey("/etc/containers/policy.json")))

		in.Pool.Spec.Updates.MinReadySeconds, in.Pool.Spec.Updates.ReadyDeadlineSeconds = ptr.To[int32](0), 60
		in.Pool.Spec.Updates.DriftPolicy, in.Pool.Spec.Updates.RebootMethod = poolv1.DriftRepair, poolv1.RebootKexec
		in.Config.Annotations[bootstrapv1.ForceUpdateAnnotation] = "again"
		a = assignmentOf(in)
		Expect([]int32{a.MinReadySeconds, a.ReadyDeadlineSeconds}).To(Equal([]int32{0, 60}))
		Expect(a.RepairsDrift).To(BeTrue())
		Expect(a.RebootMethod).To(Equal(update.Kexec))
		Expect(a.Force).To(Equal("again"))
	})

	It("contains the boot that the host is to leave only if its pool reboots such hosts", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		in.Config.Annotations[bootstrapv1.RebootFromAnnotation] = "b-1 2026-12-01T00:00:00Z"
		Expect(assignmentOf(in).RebootFrom).To(BeEmpty())
		in.Pool.Spec.Updates.RebootRequiredPolicy = poolv1.RebootRequiredReboot
		Expect(assignmentOf(in).RebootFrom).To(Equal("b-1"))
	})

	It("contains the pool, and the last restart that was requested for its hosts", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		Expect(assignmentOf(in)).To(And(HaveField("Pool", "infra"), HaveField("Restart", BeNil())))
		in.Pool.Spec.Updates.Restart = poolv1.RestartRequest{ID: "1", Kind: poolv1.RestartKubelet}
		Expect(assignmentOf(in).Restart).To(Equal(&assignment.Restart{ID: "1", Kind: update.RestartKubelet}))
	})

	It("does not need a worker pool, and is refused if there are two", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		in.Pools = in.Pools[1:]
		Expect(assignmentOf(in).Policy.Paths).NotTo(HaveKey("/etc/chrony.conf"))
		worker := newInput(bootstrapv1.JoinTypeKubelet).Pools[0]
		in.Pools = append(in.Pools, worker, worker)
		_, err := join.Document(in)
		Expect(err).To(MatchError(ContainSubstring(`"worker"`)))
	})

	It("restarts the kubelet when its flags change, and never reboots for what Poolboot writes itself", func() {
		for _, joinType := range joinTypes {
			in := newInput(joinType)
			// The policy of a user for a directory does not apply to Poolboot's files in it.
			in.Pool.Spec.Updates.DisruptionPolicy.Files = append(in.Pool.Spec.Updates.DisruptionPolicy.Files, poolv1.PathDisruptionPolicy{
				Path: "/etc/poolboot", Actions: poolv1.DisruptionActions{{Type: poolv1.ActionReboot}}})
			before := assignmentOf(in)
			in.Registration.Labels["example.com/rack"] = "12"
			in.Cluster.CA = []byte("another CA\n")
			in.Offer.ServerCA = []byte("another CA of the server\n")
			after := assignmentOf(in)
			plan := update.New(update.Config{Ignition: machineOf(before)}, update.Config{Ignition: machineOf(after)}, after.Policy, update.Capabilities{})
			Expect(plan.Obstacles).To(BeEmpty())
			Expect(plan.Changes).NotTo(BeEmpty())
			Expect(plan.Actions).NotTo(BeEmpty())
			for _, action := range plan.Actions {
				Expect(action).To(Equal(update.Action{Type: update.Restart, Unit: "kubelet.service", IfExists: true}))
			}
		}
	})

	It("reboots no host when another version of Poolboot writes its files and units in another way", func() {
		for _, joinType := range joinTypes {
			in := newInput(joinType)
			in.Config.Spec.ExtraConfig = nil // of the user
			before := assignmentOf(in)
			other := machineOf(before)
			for i := range other.Storage.Files {
				other.Storage.Files[i].Contents.Source = ptr.To("data:,another%20version")
			}
			for i := range other.Systemd.Units {
				u := &other.Systemd.Units[i]
				u.Contents = ptr.To(ptr.Deref(u.Contents, "") + "# another version\n")
				for j := range u.Dropins {
					u.Dropins[j].Contents = ptr.To("# another version\n")
				}
			}
			plan := update.New(update.Config{Ignition: machineOf(before)}, update.Config{Ignition: other}, before.Policy, update.Capabilities{})
			Expect(plan.Obstacles).To(BeEmpty())
			Expect(plan.Changes).To(HaveLen(len(other.Storage.Files) + len(other.Systemd.Units)))
			Expect(plan.Reboots()).To(BeFalse(), "%v", plan.Changes)
		}
	})

	It("has the same bytes for the same input, and others when any input changes", func() {
		first, err := join.Document(newInput(bootstrapv1.JoinTypeKubelet))
		Expect(err).NotTo(HaveOccurred())
		Expect(join.Document(newInput(bootstrapv1.JoinTypeKubelet))).To(Equal(first))
		for name, change := range map[string]func(*join.Input){
			"join":     func(in *join.Input) { in.Config.Spec.Join.Type = bootstrapv1.JoinTypeKubeadm },
			"extra":    func(in *join.Input) { in.Config.Spec.ExtraConfig = nil },
			"force":    func(in *join.Input) { in.Config.Annotations[bootstrapv1.ForceUpdateAnnotation] = "1" },
			"rendered": func(in *join.Input) { in.Rendered.Name = "rendered-infra-2" },
			"labels":   func(in *join.Input) { in.Registration.Labels["example.com/a"] = "b" },
			"CA":       func(in *join.Input) { in.Cluster.CA = []byte("another CA\n") },
			"agent":    func(in *join.Input) { in.Offer.Agent.Version = "v0.2.0" },
			"URL":      func(in *join.Input) { in.Offer.ServerURL = "https://other.example.com" },
			"pool":     func(in *join.Input) { in.Pool.Spec.Updates.MinReadySeconds = ptr.To[int32](11) },
		} {
			in := newInput(bootstrapv1.JoinTypeKubelet)
			change(&in)
			Expect(join.Document(in)).NotTo(Equal(first), name)
		}
	})

	It("does not depend on the order of pools", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		first := assignmentOf(in)
		slices.Reverse(in.Pools)
		in.Pool = &in.Pools[0]
		Expect(assignmentOf(in)).To(Equal(first))
	})

	DescribeTable("contains exactly what the first boot writes, without what is only for the join",
		func(joinType bootstrapv1.JoinType, onlyFirst ...string) {
			in := newInput(joinType)
			lasting, first := machineOf(assignmentOf(in)), overlayOf(in, "amd64")
			raw, err := ignition.Marshal(first)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(raw)).To(ContainSubstring("agent"))
			first, err = ignition.Parse(raw)
			Expect(err).NotTo(HaveOccurred())

			isOnlyFirst := func(name string) bool { return slices.Contains(onlyFirst, name) }
			first.Storage.Files = slices.DeleteFunc(first.Storage.Files, func(f types.File) bool { return isOnlyFirst(f.Path) })
			first.Storage.Directories = slices.DeleteFunc(first.Storage.Directories, func(d types.Directory) bool { return isOnlyFirst(d.Path) })
			Expect(first).To(Equal(lasting))
			Expect(pathsOf(lasting)).To(ContainElements("/etc/rack", "/etc/poolboot/agent.json", "poolboot-agent.service", "poolboot-register.service", "kubelet.service"))
		},
		Entry("with the join type Kubelet", bootstrapv1.JoinTypeKubelet, "/etc/kubernetes/bootstrap-kubelet.conf",
			"/var/lib/poolboot", "/var/lib/poolboot/bin/poolboot-agent", "/etc/poolboot/report.conf", "/etc/poolboot/config-server.pem"),
		Entry("with the join type Kubeadm", bootstrapv1.JoinTypeKubeadm, "/etc/poolboot/discovery.conf",
			"/var/lib/poolboot", "/var/lib/poolboot/bin/poolboot-agent", "/etc/poolboot/report.conf", "/etc/poolboot/config-server.pem"),
	)

	It("has no join credential", func() {
		for _, joinType := range joinTypes {
			in := newInput(joinType)
			Expect(assignmentOf(in).Machine).NotTo(BeEmpty())
			for _, file := range machineOf(assignmentOf(in)).Storage.Files {
				Expect(textOf(machineOf(assignmentOf(in)), file.Path)).NotTo(ContainSubstring(tokenSecret), file.Path)
			}
		}
	})

	It("names the config server for the agent, with the host's pointer ID", func() {
		settings, err := assignment.ReadSettings([]byte(textOf(machineOf(assignmentOf(newInput(bootstrapv1.JoinTypeKubelet))), assignment.SettingsPath)))
		Expect(err).NotTo(HaveOccurred())
		Expect(settings).To(Equal(assignment.Settings{
			Server: "https://boot.example.com:9444", CA: "the server's CA\n", Namespace: "metal", Name: "infra-boot", PointerID: "1-2",
		}))
	})

	DescribeTable("is refused with an error that names the cause", func(change func(*join.Input), message string) {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		change(&in)
		_, err := join.Document(in)
		Expect(err).To(MatchError(And(ContainSubstring("metal/infra-boot"), ContainSubstring(message))))
	},
		Entry("without a pointer ID", func(in *join.Input) { in.Config.Annotations = nil }, bootstrapv1.PointerIDAnnotation),
		Entry("without a control plane endpoint", func(in *join.Input) { in.Cluster.Server = "" }, "control plane endpoint"),
		Entry("if it is too large for a Secret", func(in *join.Input) {
			raw, err := json.Marshal(map[string]any{"ignition": map[string]string{"version": "3.5.0"}, "storage": map[string]any{
				"files": []any{map[string]any{"path": "/etc/large", "contents": map[string]string{"source": "data:," + strings.Repeat("x", assignment.MaxSize)}}}}})
			Expect(err).NotTo(HaveOccurred())
			in.Config.Spec.ExtraConfig.Config.Raw = raw
		}, "shorten spec.extraConfig"),
	)

	It("is refused if the extraConfig cannot be used", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		in.Config.Spec.ExtraConfig.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/var/lib/poolboot/bin/poolboot-agent"}]}}`)
		_, err := join.Document(in)
		Expect(err).To(BeAssignableToTypeOf(&join.ExtraConfigError{}))
		Expect(err).To(MatchError(ContainSubstring("reserved")))
	})
})

var _ = Describe("The overlay of the first boot", func() {
	DescribeTable("has the agent, and Ignition accepts it, byte for byte", func(joinType bootstrapv1.JoinType, name string) {
		raw, err := ignition.Marshal(overlayOf(newInput(joinType), "arm64"))
		Expect(err).NotTo(HaveOccurred())
		_, report, err := ignitionv35.Parse(raw)
		Expect(err).NotTo(HaveOccurred(), report.String())
		Expect(report.Entries).To(BeEmpty(), report.String())
		var readable bytes.Buffer
		Expect(json.Indent(&readable, append(raw, '\n'), "", "  ")).To(Succeed())
		golden.Expect(name, readable.Bytes())
	},
		Entry("with the join type Kubelet", bootstrapv1.JoinTypeKubelet, "kubelet-agent.json"),
		Entry("with the join type Kubeadm", bootstrapv1.JoinTypeKubeadm, "kubeadm-agent.json"),
	)

	It("downloads the agent for the host's architecture from the config server, and verifies it", func() {
		for architecture, digit := range map[string]string{"amd64": "6", "arm64": "8"} {
			overlay := overlayOf(newInput(bootstrapv1.JoinTypeKubelet), architecture)
			i := slices.IndexFunc(overlay.Storage.Files, func(f types.File) bool { return f.Path == assignment.ProgramPath })
			Expect(i).To(BeNumerically(">=", 0))
			program := overlay.Storage.Files[i]
			hash := strings.Repeat(digit, 128)
			Expect(program.Contents.Source).To(HaveValue(Equal("https://boot.example.com:9444/agent/" + hash)))
			Expect(program.Contents.Compression).To(HaveValue(Equal("gzip")))
			Expect(program.Contents.Verification.Hash).To(HaveValue(Equal("sha512-" + hash)))
			Expect(program.Mode).To(HaveValue(Equal(0o755)))
		}
	})

	It("has no agent if none is offered for the host's architecture", func() {
		in := newInput(bootstrapv1.JoinTypeKubelet)
		for _, overlay := range []ignition.Config{overlayOf(in, "ppc64le"), func() ignition.Config {
			in.Offer = join.Offer{}
			return overlayOf(in, "amd64")
		}()} {
			for _, name := range pathsOf(overlay) {
				Expect(name).NotTo(Or(ContainSubstring("agent"), ContainSubstring("register"), HavePrefix("/var/lib/poolboot")))
			}
		}
	})

	It("has the agent also for a host that reads spec 3.0 only", func() {
		packed, err := ignition.PackOverlay(overlayOf(newInput(bootstrapv1.JoinTypeKubelet), "amd64"))
		Expect(err).NotTo(HaveOccurred())
		older, err := packed.ForVersion("3.0.0")
		Expect(err).NotTo(HaveOccurred())
		raw, err := dataurl.DecodeString(string(older))
		Expect(err).NotTo(HaveOccurred())
		config, report, err := ignitionv30.Parse(raw.Data)
		Expect(err).NotTo(HaveOccurred(), report.String())
		i := slices.IndexFunc(config.Storage.Files, func(f ignitionv30types.File) bool { return f.Path == assignment.ProgramPath })
		Expect(i).To(BeNumerically(">=", 0))
		contents := config.Storage.Files[i].Contents
		Expect(contents.Source).To(HaveValue(HavePrefix("https://boot.example.com:9444/agent/")))
		Expect(contents.Compression).To(HaveValue(Equal("gzip")))
		Expect(contents.Verification.Hash).To(HaveValue(Equal("sha512-" + strings.Repeat("6", 128))))
	})
})
