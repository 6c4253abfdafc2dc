package adopt

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	ignition30 "github.com/coreos/ignition/v2/config/v3_0"
	ignition35 "github.com/coreos/ignition/v2/config/v3_5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// serverCA is a CA with a name that a shell, YAML and templates could change.
const serverCA = "# O='Edge' & \"Sons\" $(id) \\n \\\n-----BEGIN CERTIFICATE-----\nMIIB\tAAA=\n-----END CERTIFICATE-----\n"

var _ = Describe("install-agent", func() {
	offer := join.Offer{ServerURL: "https://poolboot.example.com:9444", ServerCA: []byte(serverCA)}
	served := func(config *bootstrapv1.PoolbootConfig) {
		config.Status.ConfigServer = bootstrapv1.ConfigServerReference{URL: offer.ServerURL, CertificateAuthority: serverCA}
	}
	run := func(change func(*bootstrapv1.PoolbootConfig), args ...string) clitest.Result {
		GinkgoHelper()
		return clitest.RunOn(clitest.NewFakeConnection(nil, adopting(change)), NewInstallAgent, append([]string{"install-agent", "edge-7", "-n", "metal"}, args...)...)
	}
	// expected are the contents of the files that the host should get, and enabled its units.
	expected := func() (contents map[string]string, enabled []string) {
		GinkgoHelper()
		config, err := offer.AdoptionFiles()
		Expect(err).NotTo(HaveOccurred())
		contents = map[string]string{}
		for _, f := range config.Storage.Files {
			Expect(*f.Mode).To(Equal(0o644))
			content, err := hosttree.Decode(f.Contents, nil)
			Expect(err).NotTo(HaveOccurred())
			contents[f.Path] = string(content)
		}
		for _, u := range config.Systemd.Units {
			contents["/etc/systemd/system/"+u.Name] = *u.Contents
			enabled = append(enabled, u.Name)
		}
		Expect(contents).To(HaveLen(4))
		Expect(contents).To(HaveKeyWithValue("/etc/poolboot/config-server.pem", serverCA))
		return contents, enabled
	}

	Describe("as a script", func() {
		// execute runs a line of a shell, for which the script is $script, on a host without anything in /etc and
		// /var/lib, with a systemctl that only says what it does. It returns the output, and the files in /etc
		// afterwards.
		execute := func(line string) (said string, files map[string]string) {
			GinkgoHelper()
			directory := GinkgoT().TempDir()
			script, etc := filepath.Join(directory, "script"), filepath.Join(directory, "etc")
			Expect(os.WriteFile(script, []byte(clitest.ExpectSuccess(run(served))), 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(directory, "systemctl"), []byte("#!/bin/sh\necho systemctl \"$@\"\n"), 0o700)).To(Succeed()) //nolint:gosec // a program
			cmd := exec.Command("unshare", "--map-root-user", "--mount", "sh", "-euc", "mount -t tmpfs none /etc && mount -t tmpfs none /var/lib\n"+line+"\ncp -a /etc "+etc)
			cmd.Env = append(os.Environ(), "PATH="+directory+":"+os.Getenv("PATH"), "script="+script)
			output, err := cmd.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
			files = map[string]string{}
			Expect(filepath.WalkDir(etc, func(name string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				info, err := entry.Info()
				Expect(err).NotTo(HaveOccurred())
				Expect(info.Mode()).To(Equal(os.FileMode(0o644)), name)
				content, err := os.ReadFile(name)
				files[strings.TrimPrefix(name, directory)] = string(content)
				return err
			})).To(Succeed())
			return string(output), files
		}

		It("writes the files, and starts the units, as often as it runs", func() {
			contents, enabled := expected()
			said, files := execute(`umask 077; sh "$script"; sh <"$script"`)
			Expect(files).To(Equal(contents))
			Expect(strings.Count(said, "systemctl daemon-reload\nsystemctl enable --now "+strings.Join(enabled, " ")+"\n")).To(Equal(2))
		})

		It("does nothing if it is cut off on its way to the host", func() {
			said, files := execute(`size=$(wc -c <"$script"); head -c $((size - 11)) "$script" | sh`)
			Expect(said).To(BeEmpty())
			Expect(files).To(BeEmpty())
		})

		It("removes the agent, its units, its files and its state, and nothing else", func() {
			_, enabled := expected()
			said, files := execute(`sh "$script" >/dev/null; echo a >/etc/systemd/system/a; echo {} >/etc/poolboot/agent.json; mkdir -p /var/lib/poolboot/bin /var/lib/kubelet
sh -s remove <"$script"; test ! -e /etc/poolboot; ls /var/lib`)
			Expect(files).To(Equal(map[string]string{"/etc/systemd/system/a": "a\n"}))
			Expect(said).To(Equal("systemctl disable --now " + strings.Join(enabled, " ") + "\nsystemctl daemon-reload\nkubelet\n"))
		})

		It("removes the agent of a host that has the configuration of its pool only if that is to be kept", func() {
			said, files := execute(`sh "$script" >/dev/null; echo {} >/etc/poolboot/machineconfig.json; ! sh "$script" remove`)
			Expect(said).To(ContainSubstring("set spec.host.adoption of its PoolbootConfig to Preview"))
			Expect(files).To(HaveLen(5))
			_, files = execute(`sh "$script" >/dev/null; echo {} >/etc/poolboot/machineconfig.json; sh "$script" remove keep`)
			Expect(files).To(Equal(map[string]string{"/etc/poolboot/machineconfig.json": "{}\n"}))
		})

		It("says which program the host lacks, before it writes anything", func() {
			said, files := execute(`for p in sh id base64 gzip sed; do ln -s "$(command -v $p)" /etc/$p; done; ! PATH=/etc sh "$script" 2>&1; rm /etc/*`)
			Expect(said).To(ContainSubstring("curl is missing on this host: install it"))
			Expect(files).To(BeEmpty())
		})
	})

	It("as a configuration of Ignition has the same files and enabled units, for every Ignition that reads version 3", func() {
		contents, enabled := expected()
		printed := clitest.ExpectSuccess(run(served, "--format", "ignition"))
		_, report, err := ignition30.Parse([]byte(printed))
		Expect(err).NotTo(HaveOccurred())
		Expect(report.Entries).To(BeEmpty())
		parsed, _, err := ignition35.ParseCompatibleVersion([]byte(printed))
		Expect(err).NotTo(HaveOccurred())
		Expect(parsed.Storage.Files).To(HaveLen(len(contents) - len(enabled)))
		for _, f := range parsed.Storage.Files {
			content, err := hosttree.Decode(f.Contents, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(content)).To(Equal(contents[f.Path]))
		}
		for i, u := range parsed.Systemd.Units {
			Expect(*u.Contents).To(Equal(contents["/etc/systemd/system/"+u.Name]))
			Expect(*u.Enabled).To(BeTrue())
			Expect(u.Name).To(Equal(enabled[i]))
		}
	})

	// cloudConfig is user data for cloud-init.
	type cloudConfig struct {
		WriteFiles []kubeadmv1.File `json:"write_files"`
		RunCommand []string         `json:"runcmd"`
	}
	expectFiles := func(files []kubeadmv1.File, commands []string) {
		GinkgoHelper()
		contents, enabled := expected()
		found := map[string]string{}
		for _, f := range files {
			Expect(f.Owner + " " + f.Permissions).To(Equal("root:root 0644"))
			found[f.Path] = f.Content
		}
		Expect(found).To(Equal(contents))
		Expect(commands).To(Equal([]string{"systemctl daemon-reload", "systemctl enable --now " + strings.Join(enabled, " ")}))
	}

	It("as a cloud-config has the same files and units", func() {
		printed := clitest.ExpectSuccess(run(served, "--format", "cloud-config"))
		Expect(printed).To(HavePrefix("#cloud-config\n"))
		var parsed cloudConfig
		Expect(yaml.UnmarshalStrict([]byte(printed), &parsed)).To(Succeed())
		expectFiles(parsed.WriteFiles, parsed.RunCommand)
	})

	It("as a snippet for kubeadm has the same files and units, also in the user data of the kubeadm bootstrap provider", func() {
		var spec kubeadmv1.KubeadmConfigSpec
		Expect(yaml.UnmarshalStrict([]byte(clitest.ExpectSuccess(run(served, "--format", "kubeadm"))), &spec)).To(Succeed())
		expectFiles(spec.Files, spec.PostKubeadmCommands)

		userData, err := cloudinit.NewNode(&cloudinit.NodeInput{BaseUserData: cloudinit.BaseUserData{AdditionalFiles: spec.Files, PostKubeadmCommands: spec.PostKubeadmCommands}})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(userData)).NotTo(MatchRegexp(`\{[{%#]`), "cloud-init takes the user data of that provider for a template")
		var parsed cloudConfig
		Expect(yaml.Unmarshal(userData, &parsed)).To(Succeed())
		contents, _ := expected()
		for _, f := range parsed.WriteFiles {
			if want, isOurs := contents[f.Path]; isOurs {
				Expect(f.Content).To(Equal(want))
				delete(contents, f.Path)
			}
		}
		Expect(contents).To(BeEmpty())
	})

	It("says that kubeadm's bootstrap provider refuses a file as large as a large CA", func() {
		clitest.ExpectError(run(func(config *bootstrapv1.PoolbootConfig) {
			served(config)
			config.Status.ConfigServer.CertificateAuthority = strings.Repeat(serverCA, 100)
		}, "--format", "kubeadm"), 1, "put the file of --format cloud-config into a Secret, and name that in contentFrom")
	})

	DescribeTable("says why it can't print anything", func(why string, change func(*bootstrapv1.PoolbootConfig), args ...string) {
		clitest.ExpectError(run(change, args...), 1, why)
	},
		Entry("the config server is not known yet", "has no status.configServer yet: retry", unchanged),
		Entry("Poolboot boots the host", "the PoolbootConfig metal/edge-7 adopts no Node", func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.Host = bootstrapv1.HostWithoutMachine{}
		}),
		Entry("an unknown format", "--format rpm is not known: use script, cloud-config, ignition, kubeadm", served, "--format", "rpm"),
	)
})
