// Package clitest is the set-up that the tests of all commands share: it runs command lines against files and against
// a cluster without an API server.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// Command returns a command with a connection to the management cluster.
type Command func(genericiooptions.IOStreams, input.Connection) *cobra.Command

// Offline is a Command for one that reads files only.
func Offline(newCommand func(genericiooptions.IOStreams) *cobra.Command) Command {
	return func(streams genericiooptions.IOStreams, _ input.Connection) *cobra.Command {
		return newCommand(streams)
	}
}

// Result is what a command line prints, and its exit code.
type Result struct {
	Code        int
	Out, ErrOut string
}

// Run runs a command line of kubectl poolboot with one command, with a text on standard input. It can't connect to a
// cluster.
func Run(stdin string, newCommand Command, args ...string) Result {
	return run(stdin, &FakeConnection{Failure: errors.New("the test has no cluster")}, newCommand, args)
}

// RunOn runs a command line of kubectl poolboot with one command on a cluster.
func RunOn(cluster input.Connection, newCommand Command, args ...string) Result {
	return run("", cluster, newCommand, args)
}

// RunIn runs a command line of kubectl poolboot with one command on a cluster, and prints to a terminal. It returns the
// exit code.
func RunIn(terminal *os.File, cluster input.Connection, newCommand Command, args ...string) int {
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: terminal, ErrOut: terminal}
	return cli.Execute(cli.NewRoot(streams, newCommand(streams, cluster)), terminal, args)
}

func run(stdin string, to input.Connection, newCommand Command, args []string) Result {
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: &out, ErrOut: &errOut}
	code := cli.Execute(cli.NewRoot(streams, newCommand(streams, to)), &errOut, args)
	return Result{Code: code, Out: out.String(), ErrOut: Unwrap(errOut.String())}
}

// Unwrap returns messages with each in one line again.
func Unwrap(messages string) string { return strings.ReplaceAll(messages, "\n  ", " ") }

// ExpectSuccess expects a command line to succeed without a note, and returns what it printed.
func ExpectSuccess(r Result) string {
	GinkgoHelper()
	Expect(r.ErrOut).To(BeEmpty())
	Expect(r.Code).To(BeZero())
	return r.Out
}

// ExpectError expects a command line to fail with an exit code, to print nothing but an error, and the error to contain
// texts.
func ExpectError(r Result, code int, why ...string) {
	GinkgoHelper()
	Expect(r.Out).To(BeEmpty())
	Expect(r.ErrOut).To(HavePrefix("error: "))
	for _, text := range why {
		Expect(r.ErrOut).To(ContainSubstring(text))
	}
	Expect(r.Code).To(Equal(code))
}

// Rows returns the rows of tables and texts, each in one line again and with one space between words.
func Rows(text string) (rows []string) {
	for line := range strings.Lines(text) {
		words := strings.Join(strings.Fields(line), " ")
		if last := len(rows) - 1; last >= 0 && words != "" && line[0] == ' ' {
			rows[last] += " " + words
		} else {
			rows = append(rows, words)
		}
	}
	return rows
}

// WriteFile writes documents into a new file and returns its path. Its directory contains nothing else.
func WriteFile(name string, documents ...string) string {
	GinkgoHelper()
	return WriteFileIn(GinkgoT().TempDir(), name, documents...)
}

// WriteFileIn writes documents into a file of a directory, which it creates, and returns the path of the file.
func WriteFileIn(directory, name string, documents ...string) string {
	GinkgoHelper()
	path := filepath.Join(directory, name)
	Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	Expect(os.WriteFile(path, []byte(strings.Join(documents, "\n---\n")), 0o600)).To(Succeed())
	return path
}

// WriteKubeconfig writes a kubeconfig file for an API server and returns its path.
func WriteKubeconfig(server string) string {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["a"], config.CurrentContext = &clientcmdapi.Context{Cluster: "a"}, "a"
	path := filepath.Join(GinkgoT().TempDir(), "config")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// Block is a fenced block of a document.
type Block struct{ Language, Text string }

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// ReadBlocks returns the fenced blocks of a document.
func ReadBlocks(path string) (blocks []Block) {
	GinkgoHelper()
	document, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	for _, block := range fenced.FindAllStringSubmatch(string(document), -1) {
		blocks = append(blocks, Block{Language: block[1], Text: block[2]})
	}
	return blocks
}

// FakeConnection is a connection to objects without an API server. The namespace of the kubeconfig is edge.
type FakeConnection struct {
	client.WithWatch
	// Failure is the error of every connection.
	Failure error
	// Own reads the objects of every workload cluster; without it the kubeconfig Secret may not be read.
	Own client.Reader

	namespace string
}

// AddFlags defines --namespace.
func (s *FakeConnection) AddFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&s.namespace, "namespace", "n", "", "")
}

// Open returns the objects.
func (s *FakeConnection) Open() (*input.Cluster, error) {
	if s.Failure != nil {
		return nil, s.Failure
	}
	cluster := &input.Cluster{WithWatch: s, Namespace: "edge", Workload: func(context.Context, client.ObjectKey) (client.Reader, error) {
		if s.Own == nil {
			return nil, errors.New("secrets is forbidden")
		}
		return s.Own, nil
	}}
	if s.namespace != "" {
		cluster.Namespace, cluster.NamespaceChosen = s.namespace, true
	}
	return cluster, nil
}

// NewFakeConnection returns a connection to pools and MachineConfigs in YAML that kubectl apply has created, which are
// in the namespace edge if they name none, and to other objects.
func NewFakeConnection(documents []string, others ...client.Object) *FakeConnection {
	GinkgoHelper()
	objects, err := (&input.Files{}).Read(WriteFile("live.yaml", documents...))
	Expect(err).NotTo(HaveOccurred())
	builder := NewFakeClientBuilder(others...)
	for _, item := range objects.Own() {
		object := item.Object
		if object.GetNamespace() == "" {
			object.SetNamespace("edge")
		}
		if annotations := object.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] == "" {
			applied, err := item.Written().MarshalJSON()
			Expect(err).NotTo(HaveOccurred())
			annotations = maps.Clone(annotations)
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[corev1.LastAppliedConfigAnnotation] = string(applied)
			object.SetAnnotations(annotations)
		}
		builder = builder.WithObjects(object)
	}
	return &FakeConnection{WithWatch: builder.Build()}
}

// NewFakeClientBuilder returns a builder of a fake client that knows the kinds of the plugin.
func NewFakeClientBuilder(objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(input.Scheme()).WithObjects(objects...)
}
