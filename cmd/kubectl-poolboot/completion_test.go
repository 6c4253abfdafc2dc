package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

var _ = Describe("The shell's completion", func() {
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	live := func() *clitest.FakeConnection {
		enrolled := clitest.PoolbootConfig("infra", "", "edge-7")
		enrolled.Name, enrolled.OwnerReferences = "edge-7", nil
		joined := clitest.PoolbootConfig("infra", "infra-a", "host-1")
		record.RevokeToken(joined)
		far := clitest.PoolbootConfig("infra", "elsewhere", "")
		far.Namespace = "far"
		return clitest.NewFakeConnection([]string{clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra"), clitest.Pool("infra-2", "gpu")},
			joined, clitest.PoolbootConfig("infra", "infra-b", ""), enrolled, far,
			&bmov1alpha1.BareMetalHost{ObjectMeta: in("edge", "rack1-u12")}, &poolv1.Enrollment{ObjectMeta: in("edge", "batch")},
			&clusterv1.Cluster{ObjectMeta: in("edge", "infra-1")},
			&corev1.Namespace{ObjectMeta: in("", "edge")}, &corev1.Namespace{ObjectMeta: in("", "far")},
			&poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "rendered-infra-1", Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}},
			&poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "rendered-gpu-1", Labels: map[string]string{poolv1.RenderedForLabel: "gpu"}}})
	}
	// completed are the words that the shell is given for the last argument, with its directive.
	completed := func(to input.Connection, args ...string) string {
		GinkgoHelper()
		var out, errOut bytes.Buffer
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
		root := newRoot(streams, func() input.Connection { return to })
		Expect(cli.Execute(root, &errOut, append([]string{cobra.ShellCompNoDescRequestCmd}, args...))).To(BeZero(), errOut.String())
		return strings.TrimSuffix(out.String(), "\n")
	}
	const noFiles, filesToo = ":4", ":0"
	words := func(words ...string) string { return strings.Join(append(words, noFiles), "\n") }

	DescribeTable("completes names in the management cluster",
		func(expected string, args ...string) { Expect(completed(live(), args...)).To(Equal(expected)) },
		Entry("boots", words("edge-7", "infra-a", "infra-b"), "boots", ""),
		Entry("boots with the typed prefix", words("infra-a", "infra-b"), "boots", "inf"),
		Entry("boots by their Nodes", words("host-1"), "boots", "ho"),
		Entry("boots by their hosts", words("rack1-u12"), "boots", "ra"),
		Entry("boots by their PoolbootConfigs", words("infra-a-config"), "boots", "infra-a-"),
		Entry("rendered configs of a pool", words("rendered-infra-1"), "rollout", "pause", "infra", "--configuration", ""),
		Entry("rendered configs of a pool to return to", words("rendered-infra-1"), "rollout", "undo", "infra", "--to", ""),
		Entry("hosts of a pool", words("host-1"), "rollout", "retry", "infra", "--host", ""),
		Entry("further boots", words("edge-7", "infra-a", "infra-b"), "boots", "infra-a", ""),
		Entry("boots of another namespace", words("elsewhere"), "boots", "-n", "far", ""),
		Entry("boots of all namespaces", words("edge-7", "elsewhere", "infra-a", "infra-b"), "boots", "-A", ""),
		Entry("Machines", words("infra-a", "infra-b"), "explain", "machine", ""),
		Entry("Nodes", words("edge-7", "host-1"), "explain", "node", ""),
		Entry("hosts", words("rack1-u12"), "explain", "host", ""),
		Entry("pools of an exception", words("infra"), "rollout", "except", "in"),
		Entry("hosts of an exception, or what it does", words("--ignore-window", "--remove", "--skip", "host-1"), "rollout", "except", "infra", ""),
		Entry("what the exception does after both", words("--ignore-window", "--remove", "--skip"), "rollout", "except", "infra", "host-1", ""),
		Entry("pools of a rollout", words("infra"), "rollout", "status", "in"),
		Entry("pools of a plan", words("infra"), "rollout", "plan", "in"),
		Entry("pools to pause", words("gpu", "infra", "worker"), "rollout", "pause", ""),
		Entry("pools to resume", words("gpu", "infra", "worker"), "rollout", "resume", ""),
		Entry("pools with a history", words("gpu", "infra", "worker"), "rollout", "history", ""),
		Entry("nothing after a pool", words(), "rollout", "status", "infra", ""),
		Entry("files after the name", filesToo, "explain", "host", "rack1-u12", ""),
		Entry("Enrollments", words("batch"), "pointer", "--host", "edge-7", ""),
		Entry("nothing after an Enrollment", words(), "pointer", "--host", "edge-7", "batch", ""),
		Entry("nothing for the name of a new Enrollment", words(), "enroll", "--cluster", "a", "--name-pattern", "b", "--pool", "c", ""),
		Entry("pools for an Enrollment", words("gpu", "infra", "worker"), "enroll", "--pool", ""),
		Entry("pools of another namespace for an Enrollment", words(), "enroll", "-n", "far", "--pool", ""),
		Entry("Clusters for an Enrollment", words("infra-1"), "enroll", "--cluster", ""),
		Entry("pools of a host", words("infra"), "explain", "host", "rack1-u12", "--pool", "in"),
		Entry("pools to render", words("gpu", "infra", "worker"), "render", "--live", "--pool", ""),
		Entry("Clusters of Nodes", words("infra-1", "infra-2"), "diff", "--cluster", ""),
		Entry("Clusters of boots", words("infra-1", "infra-2"), "boots", "--cluster", ""),
		Entry("namespaces", words("edge", "far"), "boots", "--namespace", ""),
		Entry("namespaces of a move", words("far"), "move-check", "-n", "f"),
		Entry("namespaces for an Enrollment", words("edge", "far"), "enroll", "-n", ""),
	)

	It("completes names in the files of the command line", func() {
		pools := clitest.WriteFile("pools.yaml", clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "storage"))
		for _, command := range []string{"render", "labels"} {
			Expect(completed(live(), command, "-f", pools, "--pool", "")).To(Equal(words("storage", "worker")), command)
			Expect(completed(live(), command, "-f", pools, "--cluster", "")).To(Equal(words("infra-1")), command)
		}
		Expect(completed(live(), "which", "--pools", pools, "--cluster", "")).To(Equal(words("infra-1")))
		Expect(completed(live(), "rollout", "plan", "--pools", pools, "--cluster", "")).To(Equal(words("infra-1")))
		Expect(completed(live(), "explain", "host", "a", "-f", pools, "--pool", "s")).To(Equal(words("storage")))
	})

	It("does not wait for standard input, and completes to nothing without readable files", func() {
		Expect(completed(live(), "labels", "-f", "-", "--pool", "")).To(Equal(words()))
		Expect(completed(live(), "labels", "--pool", "")).To(Equal(words()))
		Expect(completed(live(), "labels", "-f", "nowhere.yaml", "--pool", "")).To(Equal(words()))
	})

	It("completes contexts and users of the kubeconfig", func() {
		config := clientcmdapi.NewConfig()
		config.Contexts["site-a"], config.Contexts["site-b"] = &clientcmdapi.Context{}, &clientcmdapi.Context{}
		config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{}
		path := filepath.Join(GinkgoT().TempDir(), "config")
		Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
		Expect(completed(input.NewConnection(), "boots", "--kubeconfig", path, "--context", "")).To(Equal(words("site-a", "site-b")))
		Expect(completed(input.NewConnection(), "boots", "--kubeconfig", path, "--user", "a")).To(Equal(words("admin")))
	})

	It("gives up within seconds if the API server does not answer", func() {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		DeferCleanup(server.CloseClientConnections)
		start := time.Now()
		Expect(completed(input.NewConnection(), "boots", "--kubeconfig", clitest.WriteKubeconfig(server.URL), "")).To(Equal(words()))
		Expect(time.Since(start)).To(BeNumerically("<", 5*time.Second))
	})

	It("completes each flag and argument to something that the command accepts, or to files where they are meant", func() {
		eachCommand(func(cmd *cobra.Command) {
			cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
				_, isCompleted := cmd.GetFlagCompletionFunc(f.Name)
				isFile := f.Annotations[cobra.BashCompFilenameExt] != nil || f.Annotations[cobra.BashCompSubdirsInDir] != nil || strings.Contains(f.Usage, "file")
				Expect(f.Hidden || isCompleted || isFile || f.Value.Type() == "bool").To(BeTrue(), "%s --%s", cmd.CommandPath(), f.Name)
			})
			Expect(cmd.ValidArgsFunction != nil || strings.Contains(cmd.Use, "FILE") || cmd.HasSubCommands()).To(BeTrue(), cmd.Use)
		})
	})

	It("completes to nothing, and prints no error into the command line, when nothing can be read", func() {
		Expect(completed(&clitest.FakeConnection{Failure: errors.New("no configuration")}, "boots", "")).To(Equal(words()))
		forbidden := interceptor.NewClient(clitest.NewFakeClientBuilder().Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("forbidden")
			},
		})
		Expect(completed(&clitest.FakeConnection{WithWatch: forbidden}, "boots", "")).To(Equal(words()))
	})
})
