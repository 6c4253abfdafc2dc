package join_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"time"

	ignitionv35 "github.com/coreos/ignition/v2/config/v3_5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	kubeadmv1beta4 "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstreamv1beta4"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/golden"
)

const secret = "0123456789abcdef"

var _ = Describe("The overlay of a machine", func() {
	var (
		cfg        *bootstrapv1.PoolbootConfig
		registered registration.Registration
		cluster    join.Cluster
		credential join.Credential
		agent      *join.Agent
	)

	BeforeEach(func() {
		cfg = &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "infra-boot"},
			Spec:       bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}},
		}
		registered = registration.Registration{
			Name:       "infra-x7k2p",
			ProviderID: "metal3://metal/rack1-u12/infra-m3m",
			Labels: map[string]string{
				"node-role.kubernetes.io/infra": "",
				"poolboot.io/pool":              "infra",
				"metal3.io/uuid":                "3f2c9a54-5b1e-4d0c-9e51-6f9c0a2b7d11",
			},
			Taints: []corev1.Taint{
				{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule},
				{Key: "poolboot.io/unassigned", Effect: corev1.TaintEffectNoSchedule},
			},
		}
		cluster = join.Cluster{Name: "edge", Server: "https://edge.example.com:6443", CA: []byte("the cluster's CA\n")}
		credential = join.Credential{ID: "abc123", Secret: secret, Expires: time.Unix(1_800_000_000, 0)}
		agent = nil
	})

	overlay := func() ignition.Config {
		config, err := join.Machine{Config: cfg, Registration: registered, Cluster: cluster, Agent: agent}.Overlay(credential)
		Expect(err).NotTo(HaveOccurred())
		return config
	}
	useKubeadm := func() {
		cfg.Spec.Join = bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{
			CRISocket:             "unix:///run/crio/crio.sock",
			IgnorePreflightErrors: []string{"Swap"},
		}}
	}

	DescribeTable("is the same, byte for byte, for the same input, and Ignition accepts it",
		func(name string, choose func()) {
			choose()
			raw, err := ignition.Marshal(overlay())
			Expect(err).NotTo(HaveOccurred())
			_, report, err := ignitionv35.Parse(raw)
			Expect(err).NotTo(HaveOccurred(), report.String())
			Expect(report.Entries).To(BeEmpty(), report.String())
			golden.Expect(name, readable(raw))
		},
		Entry("with the join type Kubelet", "kubelet.json", func() {}),
		Entry("with the join type Kubeadm", "kubeadm.json", useKubeadm),
	)

	It("has the credential only in a file that only root can read", func() {
		for _, choose := range []func(){func() {}, useKubeadm} {
			choose()
			config := overlay()
			carriers := 0
			for _, file := range config.Storage.Files {
				if strings.Contains(contents(config, file.Path), secret) {
					carriers++
					Expect(file.Mode).To(HaveValue(Equal(0o600)), file.Path)
				}
			}
			Expect(carriers).To(Equal(1))
			units, err := json.Marshal(config.Systemd)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(units)).NotTo(ContainSubstring(secret))
		}
	})

	It("returns its credential, also after a merge with another configuration", func() {
		for _, choose := range []func(){func() {}, useKubeadm} {
			choose()
			raw, err := ignition.Marshal(ignition.Merge(ignition.New(), overlay()))
			Expect(err).NotTo(HaveOccurred())
			config, err := ignition.Parse(raw)
			Expect(err).NotTo(HaveOccurred())
			Expect(join.CredentialIn(config)).To(Equal(join.Credential{ID: "abc123", Secret: secret}))
		}
	})

	DescribeTable("returns an error instead of a credential",
		func(change func(ignition.Config) ignition.Config, message string) {
			_, err := join.CredentialIn(change(overlay()))
			Expect(err).To(MatchError(SatisfyAll(ContainSubstring(message), Not(ContainSubstring(secret)))))
		},
		Entry("because there is none", func(ignition.Config) ignition.Config { return ignition.New() }, "there is no join credential"),
		Entry("because the kubeconfig is not in the document", sourceOfKubeconfig("https://example.com/kubelet.conf"), "/etc/kubernetes/bootstrap-kubelet.conf: "),
		Entry("because the file is not a kubeconfig", sourceOfKubeconfig("data:,{"), "/etc/kubernetes/bootstrap-kubelet.conf: "),
		Entry("because the kubeconfig refers to a file", sourceOfKubeconfig("data:,"+url.PathEscape(
			`{"clusters":[{"name":"edge","cluster":{"server":"https://edge.example.com:6443"}}],"contexts":[{"name":"a","context":{"cluster":"edge","user":"a"}}],`+
				`"current-context":"a","users":[{"name":"a","user":{"tokenFile":"/dev/zero"}}]}`)),
			"/etc/kubernetes/bootstrap-kubelet.conf: users[0].user.tokenFile: files are not read"),
		Entry("because the kubeconfig has another kind of token", sourceOfKubeconfig("data:,"+url.PathEscape(
			`{"clusters":[{"name":"edge","cluster":{"server":"https://edge.example.com:6443"}}],"contexts":[{"name":"a","context":{"cluster":"edge","user":"a"}}],`+
				`"current-context":"a","users":[{"name":"a","user":{"token":"`+secret+`"}}]}`)),
			"/etc/kubernetes/bootstrap-kubelet.conf: the kubeconfig has no bootstrap token"),
	)

	It("removes the checkpoints of the kubelet before the kubelet first starts in a boot, and after the kubelet stops with the unit", func() {
		for _, choose := range []func(){func() {}, useKubeadm} {
			choose()
			Expect(unitText(overlay(), "poolboot-checkpoints.service")).To(And(ContainSubstring("\nType=oneshot\nRemainAfterExit=yes\n"),
				ContainSubstring("\nExecStart=/usr/bin/rm -f /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state\n")))
			for _, unit := range overlay().Systemd.Units {
				if unit.Name == "kubelet.service" {
					text := ptr.Deref(unit.Contents, "")
					for _, dropin := range unit.Dropins {
						text += *dropin.Contents
					}
					Expect(text).To(ContainSubstring("\nWants=poolboot-checkpoints.service\nAfter=poolboot-checkpoints.service\nPartOf=poolboot-checkpoints.service\n"))
				}
			}
		}
	})

	It("overwrites the files of the image", func() {
		for _, choose := range []func(){func() {}, useKubeadm} {
			choose()
			for _, file := range overlay().Storage.Files {
				Expect(file.Overwrite).To(HaveValue(BeTrue()), file.Path)
			}
		}
	})

	Describe("with the join type Kubelet", func() {
		It("has a kubeconfig with the cluster and the credential", func() {
			kubeconfig, err := clientcmd.RESTConfigFromKubeConfig([]byte(contents(overlay(), "/etc/kubernetes/bootstrap-kubelet.conf")))
			Expect(err).NotTo(HaveOccurred())
			Expect(kubeconfig.Host).To(Equal("https://edge.example.com:6443"))
			Expect(kubeconfig.CAData).To(Equal(cluster.CA))
			Expect(kubeconfig.BearerToken).To(Equal("abc123." + secret))
		})

		It("has a kubelet that accepts only requests that the API server authorizes", func() {
			kubelet := &kubeletv1beta1.KubeletConfiguration{}
			Expect(yaml.UnmarshalStrict([]byte(contents(overlay(), "/etc/kubernetes/kubelet.yaml")), kubelet)).To(Succeed())
			Expect(kubelet.Authentication.Anonymous.Enabled).To(HaveValue(BeFalse()))
			Expect(kubelet.Authentication.Webhook.Enabled).To(HaveValue(BeTrue()))
			Expect(kubelet.Authentication.X509.ClientCAFile).To(Equal("/etc/kubernetes/pki/ca.crt"))
			Expect(kubelet.Authorization.Mode).To(Equal(kubeletv1beta1.KubeletAuthorizationModeWebhook))
			Expect(contents(overlay(), "/etc/kubernetes/pki/ca.crt")).To(Equal(string(cluster.CA)))
		})

		It("starts the kubelet after the units that kubelet-dependencies.target requires", func() {
			Expect(unitText(overlay(), "kubelet-dependencies.target")).To(HavePrefix("[Unit]\n"))
			Expect(unitText(overlay(), "kubelet.service")).To(ContainSubstring("\nWants=kubelet-dependencies.target\nAfter=kubelet-dependencies.target\n"))
		})

		It("has the kubelet flags of the registration in one line, and its command for a wrapper", func() {
			Expect(contents(overlay(), "/etc/poolboot/kubelet.env")).To(Equal(
				"POOLBOOT_KUBELET_ARGS=" + strings.Join(registered.KubeletArgs(), " ") + "\n" +
					"POOLBOOT_KUBELET_COMMAND=/usr/bin/kubelet --config=/etc/kubernetes/kubelet.yaml --config-dir=/etc/kubernetes/kubelet.conf.d " +
					"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --cert-dir=/var/lib/kubelet/pki\n"))
		})

		It("passes KUBELET_EXTRA_ARGS to the kubelet, from the files that kubeadm's unit reads too, before the flags of the registration, which win", func() {
			Expect(unitText(overlay(), "kubelet.service")).To(And(
				MatchRegexp(`(?m)^ExecStart=.* \$KUBELET_EXTRA_ARGS \$POOLBOOT_KUBELET_ARGS$`),
				ContainSubstring("\nEnvironmentFile=-/etc/default/kubelet\nEnvironmentFile=-/etc/sysconfig/kubelet\nEnvironmentFile=/etc/poolboot/kubelet.env\n")))
		})

		It("runs the kubelet that the PoolbootConfig names", func() {
			cfg.Spec.Join.Kubelet.KubeletPath = "/opt/bin/kubelet"
			Expect(unitText(overlay(), "kubelet.service")).To(ContainSubstring("\nExecStart=/opt/bin/kubelet --config="))
		})

		It("reports to Cluster API only when the kubelet has its certificate", func() {
			Expect(unitText(overlay(), "poolboot-joined.path")).To(ContainSubstring("PathExists=/var/lib/kubelet/pki/kubelet-client-current.pem"))
			Expect(unitText(overlay(), "poolboot-joined.service")).To(ContainSubstring("ExecStart=/usr/bin/touch /run/cluster-api/bootstrap-success.complete"))
		})

		It("writes what the join wrote to the disk, with an option that the sync of BusyBox also has", func() {
			Expect(unitText(overlay(), "poolboot-joined.service")).To(ContainSubstring("\nExecStart=-/usr/bin/sync -f /var/lib/kubelet /etc/kubernetes\n"))
		})
	})

	Describe("with the join type Kubeadm", func() {
		BeforeEach(useKubeadm)

		// secondTry are the checks that fail on a host where kubeadm was interrupted.
		secondTry := []string{"FileAvailable--etc-kubernetes-bootstrap-kubelet.conf", "FileAvailable--etc-kubernetes-kubelet.conf",
			"FileAvailable--etc-kubernetes-pki-ca.crt", "Port-10250"}
		ignored := func() []string {
			joinConfig := &kubeadmv1beta4.JoinConfiguration{}
			Expect(yaml.UnmarshalStrict([]byte(contents(overlay(), "/etc/kubernetes/poolboot-join.yaml")), joinConfig)).To(Succeed())
			return joinConfig.NodeRegistration.IgnorePreflightErrors
		}

		It("has the registration in the JoinConfiguration", func() {
			joinConfig := &kubeadmv1beta4.JoinConfiguration{}
			Expect(yaml.UnmarshalStrict([]byte(contents(overlay(), "/etc/kubernetes/poolboot-join.yaml")), joinConfig)).To(Succeed())
			Expect(joinConfig.NodeRegistration).To(Equal(kubeadmv1beta4.NodeRegistrationOptions{
				Name:      "infra-x7k2p",
				CRISocket: "unix:///run/crio/crio.sock",
				Taints:    registered.Taints,
				KubeletExtraArgs: []kubeadmv1beta4.Arg{
					{Name: "config-dir", Value: "/etc/kubernetes/kubelet.conf.d"},
					{Name: "node-labels", Value: "poolboot.io/pool=infra"},
					{Name: "provider-id", Value: "metal3://metal/rack1-u12/infra-m3m"},
				},
				IgnorePreflightErrors: append([]string{"Swap"}, secondTry...),
			}))
			kubeconfig, err := clientcmd.RESTConfigFromKubeConfig([]byte(contents(overlay(), joinConfig.Discovery.File.KubeConfigPath)))
			Expect(err).NotTo(HaveOccurred())
			Expect(kubeconfig.BearerToken).To(Equal("abc123." + secret))
		})

		It("has the directory for drop-ins, without which the kubelet would not start", func() {
			Expect(overlay().Storage.Directories).To(ContainElement(HaveField("Path", "/etc/kubernetes/kubelet.conf.d")))
		})

		It("writes none of the files that must not exist before kubeadm join", func() {
			for _, file := range overlay().Storage.Files {
				Expect(file.Path).NotTo(BeElementOf("/etc/kubernetes/kubelet.conf", "/etc/kubernetes/bootstrap-kubelet.conf", "/etc/kubernetes/pki/ca.crt"))
			}
		})

		It("runs the kubeadm that the PoolbootConfig names, and finds the kubelet in the same directory", func() {
			cfg.Spec.Join.Kubeadm.KubeadmPath = "/opt/bin/kubeadm"
			text := unitText(overlay(), "poolboot-join.service")
			Expect(text).To(ContainSubstring("\nExecStart=/opt/bin/kubeadm join --config=/etc/kubernetes/poolboot-join.yaml\n"))
			Expect(text).To(ContainSubstring("\nEnvironment=PATH=/opt/bin:"))
		})

		It("retries only until the kubelet has its certificate, and its kubeconfig survived a power loss", func() {
			text := unitText(overlay(), "poolboot-join.service")
			Expect(text).To(SatisfyAll(ContainSubstring("Type=oneshot"), ContainSubstring("Restart=on-failure"),
				ContainSubstring("ConditionPathExists=|!/var/lib/kubelet/pki/kubelet-client-current.pem"),
				ContainSubstring("ConditionFileNotEmpty=|!/etc/kubernetes/kubelet.conf")))
			Expect(ignored()).To(ContainElements(secondTry))
		})

		It("also ignores what the user ignores, and adds nothing to all", func() {
			cfg.Spec.Join.Kubeadm.IgnorePreflightErrors = nil
			Expect(ignored()).To(Equal(secondTry))
			cfg.Spec.Join.Kubeadm.IgnorePreflightErrors = []string{"all"}
			Expect(ignored()).To(Equal([]string{"all"}), "kubeadm refuses all with another")
		})

		It("reports to Cluster API only when the kubelet has its certificate, at every boot", func() {
			Expect(unitText(overlay(), "poolboot-joined.path")).To(ContainSubstring("PathExists=/var/lib/kubelet/pki/kubelet-client-current.pem"))
			Expect(unitText(overlay(), "poolboot-joined.service")).To(ContainSubstring("ExecStart=/usr/bin/touch /run/cluster-api/bootstrap-success.complete"))
		})
	})

	Describe("with an extraConfig", func() {
		It("contains the entries of the user, and its own entries win", func() {
			cfg.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: []byte(
				`{"ignition":{"version":"3.1.0"},"storage":{"files":[{"path":"/etc/rack","contents":{"source":"data:,r1"}}]},` +
					`"systemd":{"units":[{"name":"kubelet.service","dropins":[{"name":"10-nice.conf","contents":"[Service]\nNice=-5\n"}]}]}}`)}}
			config := overlay()
			Expect(contents(config, "/etc/rack")).To(Equal("r1"))
			Expect(unitText(config, "kubelet.service")).To(ContainSubstring("ExecStart=/usr/bin/kubelet"))
			Expect(config.Systemd.Units).To(ContainElement(SatisfyAll(
				HaveField("Name", "kubelet.service"), HaveField("Dropins", HaveLen(1)))))
		})

		It("accepts Butane too", func() {
			cfg.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Butane: "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/rack\n    contents: {inline: r1}\n"}
			Expect(contents(overlay(), "/etc/rack")).To(Equal("r1"))
		})

		DescribeTable("is refused when it cannot be used, with an error that names the field",
			func(extra bootstrapv1.ExtraConfig, field, message string) {
				cfg.Spec.ExtraConfig = &extra
				_, err := join.Machine{Config: cfg, Registration: registered, Cluster: cluster, Agent: agent}.Overlay(credential)
				Expect(err).To(BeAssignableToTypeOf(&join.ExtraConfigError{}))
				Expect(err).To(HaveField("Field", field))
				Expect(err).To(MatchError(SatisfyAll(HavePrefix(field+": "), ContainSubstring(message), Not(ContainSubstring(secret)))))
			},
			Entry("because it is not Ignition",
				bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"9.0.0"}}`)}},
				"spec.extraConfig.config", "9.0.0"),
			Entry("because it is not Butane",
				bootstrapv1.ExtraConfig{Butane: "variant: nothing\nversion: 1.0.0\n"},
				"spec.extraConfig.butane", "nothing"),
			Entry("because it sets a file of Poolboot",
				bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: []byte(
					`{"ignition":{"version":"3.1.0"},"storage":{"files":[{"path":"/etc/poolboot/kubelet.env"}]}}`)}},
				"spec.extraConfig.config", "/etc/poolboot/kubelet.env"),
		)

		It("is refused if it touches what kubeadm has on the hosts of a control plane", func() {
			cfg.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Butane: "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/kubernetes/pki/a.crt\n"}
			Expect(join.CheckExtraConfig(cfg)).To(Succeed())
			for _, of := range []*string{&cfg.Spec.PoolRole, &cfg.Status.PoolRole} {
				*of = poolv1.RoleControlPlane
				Expect(join.CheckExtraConfig(cfg)).To(MatchError(ContainSubstring("/etc/kubernetes/pki/a.crt is reserved for the control plane")))
				*of = ""
			}
		})
	})

	DescribeTable("is not created from an incomplete input",
		func(change func(), message string) {
			change()
			_, err := join.Machine{Config: cfg, Registration: registered, Cluster: cluster, Agent: agent}.Overlay(credential)
			Expect(err).To(MatchError("overlay of PoolbootConfig metal/infra-boot: " + message))
		},
		Entry("without a control plane endpoint", func() { cluster.Server = "" }, "the cluster has no control plane endpoint yet"),
		Entry("without a CA", func() { cluster.CA = nil }, "the cluster's certificate authority is missing"),
		Entry("without a join type", func() { cfg.Spec.Join = bootstrapv1.Join{} }, `spec.join.type: "" is not supported: set Kubelet or Kubeadm`),
	)
})

// readable formats Ignition for the golden files: indented, with the contents of files as text.
func readable(raw []byte) []byte {
	var tree map[string]any
	Expect(json.Unmarshal(raw, &tree)).To(Succeed())
	for _, file := range tree["storage"].(map[string]any)["files"].([]any) {
		data := file.(map[string]any)["contents"].(map[string]any)
		data["source"] = strings.Split(decode(data["source"].(string)), "\n")
	}
	for _, unit := range tree["systemd"].(map[string]any)["units"].([]any) {
		if text, has := unit.(map[string]any)["contents"]; has {
			unit.(map[string]any)["contents"] = strings.Split(text.(string), "\n")
		}
	}
	text, err := json.MarshalIndent(tree, "", "  ")
	Expect(err).NotTo(HaveOccurred())
	return append(text, '\n')
}

// sourceOfKubeconfig returns a function that changes the source of the kubeconfig that has the credential.
func sourceOfKubeconfig(source string) func(ignition.Config) ignition.Config {
	return func(config ignition.Config) ignition.Config {
		for i := range config.Storage.Files {
			if config.Storage.Files[i].Path == ignition.BootstrapKubeconfigPath {
				config.Storage.Files[i].Contents.Source = &source
			}
		}
		return config
	}
}

func contents(config ignition.Config, path string) string {
	for _, file := range config.Storage.Files {
		if file.Path == path {
			return decode(*file.Contents.Source)
		}
	}
	Fail("the overlay has no file " + path)
	return ""
}

func unitText(config ignition.Config, name string) string {
	for _, unit := range config.Systemd.Units {
		if unit.Name == name {
			return *unit.Contents
		}
	}
	Fail("the overlay has no unit " + name)
	return ""
}

func decode(source string) string {
	url, err := dataurl.DecodeString(source)
	Expect(err).NotTo(HaveOccurred())
	return string(url.Data)
}
