package clusterctl_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// commandsOf returns the first n blocks of commands in a section of docs/install.md.
func commandsOf(section string, n int) string {
	GinkgoHelper()
	page, err := os.ReadFile(sourcetree.Path("docs", "install.md"))
	Expect(err).NotTo(HaveOccurred())
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	Expect(found).To(BeTrue(), section)
	text, _, _ = strings.Cut(text, "\n## ")
	var commands []string
	for _, block := range shellBlock.FindAllStringSubmatch(text, n) {
		commands = append(commands, block[1])
	}
	Expect(commands).To(HaveLen(n))
	return strings.Join(commands, "")
}

// runInShell runs commands of the page in a shell in a folder, as a user of the management cluster does.
func runInShell(ctx context.Context, dir, commands string) {
	GinkgoHelper()
	shell := exec.CommandContext(ctx, "bash", "-euxc", commands)
	shell.Dir, shell.Env, shell.Stdout, shell.Stderr = dir, cli.Environment(cluster.Kubeconfig), GinkgoWriter, GinkgoWriter
	Expect(shell.Run()).To(Succeed(), commands)
}

// replace replaces what a user of the page replaces: each old text must be in it.
func replace(commands string, values map[string]any) string {
	GinkgoHelper()
	for old, value := range values {
		Expect(commands).To(ContainSubstring(old))
		commands = strings.ReplaceAll(commands, old, fmt.Sprint(value))
	}
	return commands
}
