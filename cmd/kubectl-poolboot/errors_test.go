package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// endsWithRemedy matches an error that ends with what to do.
var endsWithRemedy = regexp.MustCompile(`(: |, |; |\n)(and |or )?([Uu]se|add|ask|check|choose|correct|install|leave|log in|name|read|retry|see|set)\b[^:]*(: (file|kubectl) [^:]*)?$`)

// liveCommands are command lines of all commands that read a cluster.
var liveCommands = []string{
	"boots", "boots infra-a --watch", "diff -f pool.yaml", "explain host rack1-u12", "explain machine infra-a", "explain node infra-a", "move-check",
	"pointer edge --host edge-7", "render --live --pool infra", "report", "rollout approve infra", "rollout except infra host-1 --remove", "rollout history infra", "rollout pause infra", "rollout plan infra",
	"rollout resume infra", "rollout retry infra", "rollout status", "rollout status infra", "rollout status infra --watch", "rollout status --watch", "rollout undo infra",
}

// apiServer answers discovery with the versions of groups, and every other request with a status.
func apiServer(status *metav1.Status, versions ...string) string {
	groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	lists := map[string]any{"/api": &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}, "/apis": groups}
	resources := map[string][]metav1.APIResource{}
	for _, r := range []struct{ groupVersion, kind string }{
		{"v1", "Secret"}, {"v1", "Namespace"}, {"v1", "Node"}, {"poolboot.io/v1alpha1", "MachineConfigPool"}, {"poolboot.io/v1alpha1", "MachineConfig"}, {"poolboot.io/v1alpha1", "Enrollment"},
		{"poolboot.io/v1beta1", "MachineConfigPool"}, {"bootstrap.cluster.x-k8s.io/v1alpha1", "PoolbootConfig"}, {"cluster.x-k8s.io/v1beta2", "Machine"}, {"cluster.x-k8s.io/v1beta2", "Cluster"},
		{"metal3.io/v1alpha1", "BareMetalHost"}, {"metal3.io/v1alpha1", "HardwareData"}, {"apiextensions.k8s.io/v1", "CustomResourceDefinition"},
	} {
		resources[r.groupVersion] = append(resources[r.groupVersion], metav1.APIResource{Name: strings.ToLower(r.kind) + "s", Kind: r.kind, Namespaced: r.kind != "Namespace" && r.kind != "Node", Verbs: metav1.Verbs{"list"}})
	}
	for _, version := range append(versions, "v1") {
		path := "/apis/" + version
		if group, v, ok := strings.Cut(version, "/"); ok {
			one := metav1.GroupVersionForDiscovery{GroupVersion: version, Version: v}
			groups.Groups = append(groups.Groups, metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{one}, PreferredVersion: one})
			lists["/apis/"+group] = &groups.Groups[len(groups.Groups)-1]
		} else {
			path = "/api/v1"
		}
		lists[path] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: resources[version]}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := lists[r.URL.Path]
		if status == nil {
			status = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}
		}
		if answer == nil {
			answer = status
			w.WriteHeader(int(status.Code))
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	DeferCleanup(server.Close)
	return clitest.WriteKubeconfig(server.URL)
}

// exitCodeOf is the exit code of a command that fails.
func exitCodeOf(command string) int {
	if strings.HasPrefix(command, "diff") {
		return 2
	}
	return 1
}

var _ = Describe("An error ends with what to do, and has its exit code,", func() {
	all := []string{"poolboot.io/v1alpha1", "bootstrap.cluster.x-k8s.io/v1alpha1", "cluster.x-k8s.io/v1beta2", "metal3.io/v1alpha1", "apiextensions.k8s.io/v1"}
	status := func(code int32, reason metav1.StatusReason, message string) *metav1.Status {
		return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
	}
	const forbidden = `things is forbidden: User "eve" cannot list resource "things"`
	BeforeEach(func() {
		GinkgoT().Chdir(GinkgoT().TempDir())
		clitest.WriteFileIn(".", "pool.yaml", clitest.Pool("edge", "infra"))
	})
	expect := func(command, why string, args ...string) {
		GinkgoHelper()
		r := runPoolboot(append(strings.Fields(command), args...)...)
		Expect(r.ErrOut).To(And(HavePrefix("error: "), MatchRegexp(why)), command)
		Expect(strings.TrimSpace(r.ErrOut)).To(MatchRegexp(endsWithRemedy.String()), command)
		Expect(r.Code).To(Equal(exitCodeOf(command)), command)
	}

	DescribeTable("of each command that reads a cluster:", func(why string, flags func() []string) {
		for _, command := range liveCommands {
			expect(command, why, flags()...)
		}
	},
		Entry("a kubeconfig that does not exist", `--kubeconfig: .*nowhere: no such file`, func() []string { return []string{"--kubeconfig", "nowhere"} }),
		Entry("a kubeconfig that is malformed", `config file .*config".*set --kubeconfig`, func() []string {
			return []string{"--kubeconfig", clitest.WriteFile("config", "clusters: [")}
		}),
		Entry("an unknown context", `context "nope" does not exist`, func() []string {
			return []string{"--kubeconfig", clitest.WriteKubeconfig("https://127.0.0.1:1"), "--context", "nope"}
		}),
		Entry("an API server that does not answer", `connection refused: check that the API server runs`, func() []string {
			return []string{"--kubeconfig", clitest.WriteKubeconfig("https://127.0.0.1:1")}
		}),
		Entry("missing rights", `(MachineConfig|PoolbootConfig|Machine|BareMetalHost|Enrollment|CustomResourceDefinition|Namespace).*User "eve" cannot.*: ask`, func() []string {
			return []string{"--kubeconfig", apiServer(status(http.StatusForbidden, metav1.StatusReasonForbidden, forbidden), all...)}
		}),
		Entry("a policy", `denied the request: frozen: correct what is refused`, func() []string {
			return []string{"--kubeconfig", apiServer(status(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "p" denied the request: frozen`), all...)}
		}),
		Entry("a policy whose message is like that of a missing right", `they cannot join: correct what is refused`, func() []string {
			return []string{"--kubeconfig", apiServer(status(http.StatusForbidden, metav1.StatusReasonForbidden,
				`things "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: they cannot join`), all...)}
		}),
		Entry("a quota", `exceeded quota: few: correct what is refused`, func() []string {
			return []string{"--kubeconfig", apiServer(status(http.StatusForbidden, metav1.StatusReasonForbidden, "things is forbidden: exceeded quota: few"), all...)}
		}),
		Entry("a program for credentials that is missing", `(?s)getting credentials: .*: correct users.user.exec`, func() []string {
			kubeconfig, err := os.ReadFile(clitest.WriteKubeconfig("https://127.0.0.1:1"))
			Expect(err).NotTo(HaveOccurred())
			config, err := clientcmd.Load(kubeconfig)
			Expect(err).NotTo(HaveOccurred())
			config.Contexts["a"].AuthInfo = "a"
			config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "nowhere", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
			kubeconfig, err = clientcmd.Write(*config)
			Expect(err).NotTo(HaveOccurred())
			return []string{"--kubeconfig", clitest.WriteFile("config", string(kubeconfig))}
		}),
		Entry("an API server with a certificate of another CA", `x509: .*: correct certificate-authority-data`, func() []string {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			DeferCleanup(server.Close)
			return []string{"--kubeconfig", clitest.WriteKubeconfig(server.URL)}
		}),
		Entry("expired credentials", `Unauthorized: log in`, func() []string {
			return []string{"--kubeconfig", apiServer(status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"), all...)}
		}),
		Entry("a cluster without Poolboot", `no MachineConfigPools of poolboot.io/v1alpha1: install Poolboot`, func() []string { return []string{"--kubeconfig", apiServer(nil, "apps/v1")} }),
		Entry("a cluster with another version of Poolboot", `MachineConfigPools of poolboot.io/v1beta1, and .*install the kubectl-poolboot`, func() []string {
			return []string{"--kubeconfig", apiServer(nil, "poolboot.io/v1beta1")}
		}),
	)

	// runLive runs a command with two pools and one boot in the cluster.
	runLive := func(command string) (code int, message string) {
		to := clitest.NewFakeConnection([]string{clitest.Pool("edge", "infra"), clitest.Pool("edge", "worker")}, clitest.PoolbootConfig("infra", "infra-a", ""))
		to.Own = clitest.NewFakeClientBuilder().Build()
		clitest.WriteFileIn(".", "rendered.yaml", clitest.Config("rendered-a", "infra", clitest.Motd("a")))
		var out, errOut bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
		code = cli.Execute(newRoot(streams, func() input.Connection { return to }), &errOut, strings.Fields(command))
		return code, strings.TrimSpace(clitest.Unwrap(errOut.String()))
	}
	DescribeTable("also with the most similar name:", func(command, name string) {
		_, message := runLive(command)
		Expect(message).To(ContainSubstring("\nDid you mean " + name + "?"))
	},
		Entry("of a command", "rendr", "render"),
		Entry("of a command below another", "rollout statu", "status"),
		Entry("of a pool", "rollout status infar", "infra"),
		Entry("of a pool to render", "render --live --pool wroker", "worker"),
		Entry("of a pool in files", "labels -f pool.yaml --pool infar", "infra"),
		Entry("of a boot", "boots infra-x", "infra-a"),
		Entry("of a Machine", "explain machine infra-x", "infra-a"),
	)

	DescribeTable("of a name that does not exist:", func(why, command string) {
		code, message := runLive(command)
		Expect(message).To(And(ContainSubstring(why), MatchRegexp(endsWithRemedy.String())))
		Expect(code).To(Equal(exitCodeOf(command)))
	},
		Entry("a namespace of boots", "namespace nope", "boots -n nope"),
		Entry("a namespace of pools", "namespace nope", "rollout status -n nope"),
		Entry("a namespace of a pool", "namespace nope contains no MachineConfigPool", "rollout status infra -n nope"),
		Entry("a boot", `"nope"`, "boots nope"),
		Entry("a host", "BareMetalHost edge/nope", "explain host nope"),
		Entry("a Machine", "Machine edge/nope", "explain machine nope"),
		Entry("a Node", `"nope"`, "explain node nope"),
		Entry("an Enrollment", "Enrollment edge/nope", "pointer nope --host a"),
		Entry("a pool to render", `"nope"`, "render --live --pool nope"),
		Entry("a pool of files", `"nope"`, "labels -f pool.yaml --pool nope"),
		Entry("a Cluster of files", "nope", "labels -f pool.yaml --pool infra --cluster nope"),
		Entry("a Cluster of a diff", "nope", "diff -f pool.yaml --cluster nope"),
		Entry("a pool", `MachineConfigPool "nope"`, "rollout plan nope"),
		Entry("a pool to approve", `MachineConfigPool "nope"`, "rollout approve nope"),
		Entry("a pool to make an exception in", `MachineConfigPool "nope"`, "rollout except nope host-1 --remove"),
		Entry("the end of an exception", "nope", "rollout except infra host-1 --skip --until nope --reason x"),
		Entry("an exception without a Node", "name both", "rollout except infra --remove"),
		Entry("a pool to pause", `MachineConfigPool "nope"`, "rollout pause nope"),
		Entry("a rendered config", "--configuration: MachineConfigPool edge/infra has no rendered config nope", "rollout pause infra --configuration nope"),
		Entry("a rendered config to return to", "--to: MachineConfigPool edge/infra has no rendered config nope", "rollout undo infra --to nope"),
		Entry("a host to retry", "--host: MachineConfigPool edge/infra has no running host nope", "rollout retry infra --host nope"),
		Entry("a kubeconfig of another cluster", "nope", "move-check --to-kubeconfig nope"),
		Entry("a file", "nope", "plan --from nope --to nope"),
		Entry("a document", "nope", "convert --ignition nope"),
		Entry("a program", "nope", "plan --from rendered.yaml --to rendered.yaml --programs nope"),
		Entry("a container runtime", "nope", "convert -f pool.yaml --cluster c -n n --container-runtime nope"),
		Entry("a command", "nope", "rollout nope"),
		Entry("no name", "name one MachineConfigPool", "rollout pause"),
		Entry("no name of a Machine", "name one Machine", "explain machine"),
		Entry("a missing flag", "set --pool", "labels -f pool.yaml"),
	)

	It("of an unknown flag, value, argument or file", func() {
		commands := 0
		eachCommand(func(cmd *cobra.Command) {
			if cmd.HasSubCommands() {
				return
			}
			path := strings.TrimPrefix(cmd.CommandPath(), "kubectl poolboot ")
			expect(path, "unknown flag: --nope", "--nope")
			if cmd.Flags().Lookup("output") != nil {
				for _, example := range inExample.FindAllStringSubmatch(strings.ReplaceAll(cmd.Example, "\\\n", ""), 1) {
					expect(strings.ReplaceAll(example[1], "'", ""), "--output xml is not known", "-o", "xml")
				}
			}
			if f := cmd.Flags().Lookup("filename"); f != nil {
				expect(strings.NewReplacer(" host", " host x", " machine", " machine x", " node", " node x").Replace(path), "nowhere.yaml: no such file", append(needed[path], "-f", "nowhere.yaml")...)
			}
			commands++
		})
		Expect(commands).To(Equal(27))
		expect("nope", `unknown command "nope"`)
		expect("render -f nowhere.yaml", "nowhere.yaml: no such file") // before it asks for --pool
	})
})

// needed are flags that a command needs beside --filename.
var needed = map[string][]string{"convert": {"--cluster", "c", "-n", "n"}, "labels": {"--pool", "infra"}, "render": {"--pool", "infra"}}
