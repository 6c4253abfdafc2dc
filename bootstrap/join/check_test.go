package join_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// differs is what the check says of a file or a setting.
const differs = " differs from what Poolboot wrote"

// checkedHost is a directory with everything that an overlay writes, and a systemctl that prints show.
type checkedHost struct {
	root, show string
	kubeadm    bool
}

func newCheckedHost(kubeadm bool) *checkedHost {
	GinkgoHelper()
	h := &checkedHost{root: GinkgoT().TempDir(), kubeadm: kubeadm}
	chosen := bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}
	if kubeadm {
		chosen = bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm}
	}
	config, err := join.Machine{
		Config: &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: chosen}}},
		Registration: registration.Registration{Name: "infra-0", Labels: map[string]string{"poolboot.io/pool": "infra"},
			Taints: []corev1.Taint{{Key: "infra", Effect: corev1.TaintEffectNoSchedule}}},
		Cluster: join.Cluster{Name: "edge", Server: "https://edge.example.com:6443", CA: []byte("CA\n")},
	}.Overlay(join.Credential{ID: "abc123", Secret: secret})
	Expect(err).NotTo(HaveOccurred())
	for _, file := range config.Storage.Files {
		// The sums have the paths on a host. In this test, a host is a directory.
		h.write(file.Path, strings.ReplaceAll(contents(config, file.Path), "  /etc/", "  "+h.root+"/etc/"))
	}
	for _, unit := range config.Systemd.Units {
		if unit.Contents != nil {
			h.write("/etc/systemd/system/"+unit.Name, *unit.Contents)
		}
		for _, dropin := range unit.Dropins {
			h.write("/etc/systemd/system/"+unit.Name+".d/"+dropin.Name, *dropin.Contents)
		}
	}
	h.write("/bin/systemctl", "#!/bin/sh\n[ \"$1 $2\" = 'show kubelet.service' ] || exit 1\ncat "+h.root+"/show\n")
	Expect(os.Chmod(h.path("/bin/systemctl"), 0o755)).To(Succeed())
	if kubeadm {
		h.show = "FragmentPath=/usr/lib/systemd/system/kubelet.service\n" +
			"ExecStart={ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_KUBEADM_ARGS ; ignore_errors=no ; pid=0 }\n" +
			"EnvironmentFiles=" + h.path("/var/lib/kubelet/kubeadm-flags.env") + " (ignore_errors=yes)\nUnsetEnvironment=\nBindPaths=\n"
		return h
	}
	_, command, _ := strings.Cut(unitText(config, "kubelet.service"), "\nExecStart=")
	command, _, _ = strings.Cut(command, "\n")
	h.show = "FragmentPath=" + h.path("/etc/systemd/system/kubelet.service") + "\n" +
		"ExecStart={ path=/usr/bin/kubelet ; argv[]=" + command + " ; ignore_errors=no ; pid=0 }\nExecStartEx={ path=/a }\n" +
		"EnvironmentFiles=" + h.path("/etc/poolboot/kubelet.env") + " (ignore_errors=no)\nUnsetEnvironment=\nBindPaths=\nRequiredBy=\nWantedBy=multi-user.target\nConflictedBy=\n"
	return h
}

func (h *checkedHost) path(name string) string { return filepath.Join(h.root, name) }

func (h *checkedHost) write(name, text string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Dir(h.path(name)), 0o755)).To(Succeed())
	Expect(os.WriteFile(h.path(name), []byte(text), 0o644)).To(Succeed())
}

// check runs the check as its unit does, or with arguments, and returns the output.
func (h *checkedHost) check(arguments ...string) (string, error) {
	GinkgoHelper()
	h.write("/show", h.show)
	whole, err := os.ReadFile(h.path("/etc/poolboot/check.sh"))
	Expect(err).NotTo(HaveOccurred())
	settings, script, _ := strings.Cut(string(whole), "\n")
	h.write("/script", strings.ReplaceAll(settings, "=/", "="+h.root+"/")+"\n"+strings.Replace(script, "PATH=", "PATH="+h.path("/bin")+":", 1))
	cmd := exec.Command("/bin/sh", append([]string{h.path("/script")}, arguments...)...)
	cmd.Env = []string{"PATH=/of/a/drop-in/of/every/service"}
	out, err := cmd.CombinedOutput()
	return strings.ReplaceAll(string(out), h.root, ""), err
}

var _ = Describe("The check before a host joins", func() {
	DescribeTable("succeeds on an unchanged host",
		func(kubeadm bool) {
			h := newCheckedHost(kubeadm)
			out, err := h.check()
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(BeEmpty())

			By("with drop-ins of the user, and with an older systemd, which quotes differently")
			h.show = strings.Replace(h.show, "$KUBELET_KUBEADM_ARGS", `"\$KUBELET_KUBEADM_ARGS"`, 1)
			h.show = strings.Replace(h.show, "$POOLBOOT_KUBELET_ARGS", `"\$POOLBOOT_KUBELET_ARGS"`, 1)
			h.show += "EnvironmentFiles=" + h.path("/etc/sysconfig/mine") + " (ignore_errors=yes)\nEnvironmentFiles=/no/such/*.env (ignore_errors=yes)\nUnsetEnvironment=HTTP_PROXY\n"
			h.write("/etc/sysconfig/mine", "A=b\n")
			h.write("/etc/kubernetes/kubelet.conf.d/10-mine.conf", "# no registerNode: here\nmaxPods: 50 # nor registerNode: here\n")
			h.write("/etc/kubernetes/kubelet.conf.d/10-mine.conf.bak", "registerNode: false\n")
			out, err = h.check()
			Expect(err).NotTo(HaveOccurred(), out)
		},
		Entry("with the join type Kubelet", false), Entry("with the join type Kubeadm", true),
	)

	It("succeeds if the wrapper of the pool starts the kubelet with its flags, and only then", func() {
		h := newCheckedHost(false)
		before, _, _ := strings.Cut(h.show, "argv[]=")
		_, after, _ := strings.Cut(h.show, " ; ignore_errors")
		wrapped := func(command string) string { return before + "argv[]=" + command + " ; ignore_errors" + after }
		h.show = wrapped("/usr/bin/nsenter --mount=/run/kubens/mnt " + ignition.WrappedKubelet)
		out, err := h.check()
		Expect(err).NotTo(HaveOccurred(), out)
		for _, command := range []string{
			"/usr/bin/nsenter --mount=/run/kubens/mnt /usr/bin/kubelet",
			"/usr/bin/nsenter --mount=/run/kubens/mnt " + ignition.WrappedKubelet + " --node-labels=a=b",
			strings.ReplaceAll("/usr/bin/nsenter "+ignition.WrappedKubelet, " $"+ignition.KubeletArgsVariable, ""),
		} {
			h.show = wrapped(command)
			out, err = h.check()
			Expect(err).To(HaveOccurred(), command)
			Expect(out).To(ContainSubstring("because ExecStart= of kubelet.service differs"))
		}
	})

	DescribeTable("stops the join on a changed host, and names the change",
		func(kubeadm bool, change func(h *checkedHost), changed string) {
			h := newCheckedHost(kubeadm)
			change(h)
			out, err := h.check()
			Expect(err).To(HaveOccurred())
			Expect(out).To(HavePrefix("poolboot: this host does not join, because " + changed))
			Expect(out).To(ContainSubstring("provision the host again, or undo the change and run: systemctl start kubelet.service"))
			Expect(out).NotTo(ContainSubstring(secret))
			Expect(strings.Split(strings.TrimSpace(out), "\n")).To(HaveEach(HavePrefix("poolboot: ")), "nothing else is on the console")
		},
		Entry("the file with the labels", false, write("/etc/poolboot/kubelet.env", "POOLBOOT_KUBELET_ARGS=--node-labels=a=b\n"), "/etc/poolboot/kubelet.env"+differs),
		Entry("a deleted file", false, remove("/etc/kubernetes/kubelet.yaml"), "/etc/kubernetes/kubelet.yaml"+differs),
		Entry("the unit of the kubelet", false, write("/etc/systemd/system/kubelet.service", "[Service]\nExecStart=/bin/true\n"), "/etc/systemd/system/kubelet.service"+differs),
		Entry("the configuration of kubeadm", true, write("/etc/kubernetes/poolboot-join.yaml", "a: b\n"), "/etc/kubernetes/poolboot-join.yaml"+differs),
		Entry("Poolboot's drop-in", true, remove("/etc/systemd/system/kubelet.service.d/10-poolboot.conf"), "/etc/systemd/system/kubelet.service.d/10-poolboot.conf"+differs),
		Entry("the unit that joins", true, write("/etc/systemd/system/poolboot-join.service", "[Service]\n"), "/etc/systemd/system/poolboot-join.service"+differs),
		Entry("the list of files", false, remove("/etc/poolboot/check.sha256"), "/etc/poolboot/check.sha256"+differs),
		Entry("a command from a drop-in", false, shown("--cert-dir", "--node-labels=a=b --cert-dir"), "ExecStart= of kubelet.service"+differs),
		Entry("a command without the flags of kubeadm", true, shown("$KUBELET_KUBEADM_ARGS", "--v=2"), "ExecStart= of kubelet.service"+differs),
		Entry("an environment file that is not read", false, shown("EnvironmentFiles=", "X="), "EnvironmentFile= of kubelet.service"+differs),
		Entry("an environment file that sets the variable", false, func(h *checkedHost) {
			h.write("/etc/other.d/1.env", "POOLBOOT_KUBELET_ARGS=\n")
			h.show += "EnvironmentFiles=" + h.path("/etc/other.d/*.env") + " (ignore_errors=no)\n"
		}, "POOLBOOT_KUBELET_ARGS, which /etc/other.d/1.env sets,"+differs),
		Entry("a variable that is unset", true, shown("UnsetEnvironment=", "UnsetEnvironment=A KUBELET_KUBEADM_ARGS"), "UnsetEnvironment= of kubelet.service"+differs),
		Entry("a mount with other files for the kubelet", false, shown("BindPaths=", "BindPaths=/opt/a:/etc/poolboot:rbind"), "BindPaths= of kubelet.service"+differs),
		Entry("taints in a drop-in of the kubelet configuration", false, write("/etc/kubernetes/kubelet.conf.d/99-a.conf", `{"registerWithTaints":[]}`), "/etc/kubernetes/kubelet.conf.d/99-a.conf"+differs),
		Entry("taints in a subdirectory, which the kubelet reads too", false,
			write("/etc/kubernetes/kubelet.conf.d/a/b/99-a.conf", `registerWithTaints: []`), "/etc/kubernetes/kubelet.conf.d/a/b/99-a.conf"+differs),
		Entry("taints in a hidden drop-in, which the kubelet reads too", false,
			write("/etc/kubernetes/kubelet.conf.d/.a.conf", `registerWithTaints: []`), "/etc/kubernetes/kubelet.conf.d/.a.conf"+differs),
		Entry("taints after text that looks like a comment", false,
			write("/etc/kubernetes/kubelet.conf.d/99-a.conf", `{"clusterDomain": "a#b", "registerWithTaints": []}`), "/etc/kubernetes/kubelet.conf.d/99-a.conf"+differs),
		Entry("an environment file with a flag that identifies the Node", false, func(h *checkedHost) {
			h.write("/etc/other.env", "# --node-labels\nA=--node_labels=a=b\n")
			h.show += "EnvironmentFiles=" + h.path("/etc/other.env") + " (ignore_errors=no)\n"
		}, "/etc/other.env has a kubelet flag that identifies the Node"),
		Entry("a kubelet that is not enabled", false, shown("WantedBy=multi-user.target", "WantedBy="), "no unit wants kubelet.service"),
		Entry("a unit that conflicts with the kubelet", false, shown("ConflictedBy=", "ConflictedBy=rival.service"), "rival.service conflicts with kubelet.service"),
	)

	It("lists what changed for the agent, one per line", func() {
		h := newCheckedHost(false)
		h.write("/etc/poolboot/kubelet.env", "")
		h.show = strings.Replace(h.show, "ConflictedBy=", "ConflictedBy=rival.service", 1)
		h.write("/etc/poolboot/versions.sh", "[ $1 = list ] && echo a kubelet that is too new")
		out, err := h.check("list")
		Expect(err).To(HaveOccurred())
		Expect(out).To(Equal("/etc/poolboot/kubelet.env" + differs + "\n/etc/poolboot/versions.sh" + differs + "\nrival.service conflicts with kubelet.service\na kubelet that is too new\n"))
	})

	It("names every changed file", func() {
		h := newCheckedHost(false)
		h.write("/etc/poolboot/kubelet.env", "")
		h.write("/etc/kubernetes/pki/ca.crt", "")
		out, err := h.check()
		Expect(err).To(HaveOccurred())
		Expect(out).To(SatisfyAll(ContainSubstring("because /etc/poolboot/kubelet.env differs"), ContainSubstring("because /etc/kubernetes/pki/ca.crt differs")))
	})

	It("runs before the kubelet and kubeadm, and covers everything that the overlay writes, apart from the credential", func() {
		for _, kubeadm := range []bool{false, true} {
			h := newCheckedHost(kubeadm)
			raw, err := os.ReadFile(h.path("/etc/poolboot/check.sha256"))
			Expect(err).NotTo(HaveOccurred())
			sums := string(raw)
			waiting := 0
			Expect(filepath.WalkDir(h.path("/etc"), func(name string, entry os.DirEntry, err error) error {
				Expect(err).NotTo(HaveOccurred())
				if entry.IsDir() || slices.Contains([]string{"check.sha256", "bootstrap-kubelet.conf", "discovery.conf"}, entry.Name()) {
					return nil
				}
				text, err := os.ReadFile(name)
				Expect(err).NotTo(HaveOccurred())
				Expect(sums).To(ContainSubstring(fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name)))
				if strings.Contains(string(text), "\nRequires=poolboot-check.service\nAfter=poolboot-check.service\n") {
					waiting++
				}
				return nil
			})).To(Succeed())
			Expect(waiting).To(Equal(map[bool]int{false: 1, true: 2}[kubeadm]), "the kubelet, and what runs kubeadm")
		}
	})
})

func write(name, text string) func(*checkedHost) { return func(h *checkedHost) { h.write(name, text) } }

func remove(name string) func(*checkedHost) {
	return func(h *checkedHost) { Expect(os.Remove(h.path(name))).To(Succeed()) }
}

func shown(before, after string) func(*checkedHost) {
	return func(h *checkedHost) {
		Expect(h.show).To(ContainSubstring(before))
		h.show = strings.Replace(h.show, before, after, 1)
	}
}
