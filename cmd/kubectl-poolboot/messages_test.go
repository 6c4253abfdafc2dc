package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// mark is at the end of each line of a wrong file that a message must name, once for each message.
const mark = " ←"

// otherMark is at the end of each line that a message names too.
const otherMark = " ↔"

// heads begin documents in the tables of wrong files: {{OpenShiftConfig NAME}} alone on a line.
var heads = map[string]string{
	"OpenShiftConfig": `---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: NAME
  labels: {machineconfiguration.openshift.io/role: worker}`,
	"OpenShiftWorker": `---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
  labels: {pools.operator.machineconfiguration.openshift.io/worker: ""}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}`,
	"OpenShiftKubelet": `---
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: NAME}
spec:
  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ""}}`,
	"OpenShiftRuntime": `---
apiVersion: machineconfiguration.openshift.io/v1
kind: ContainerRuntimeConfig
metadata: {name: NAME}
spec:
  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ""}}`,
	"Pool": `---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata:
  name: NAME
spec:
  clusterName: c
  poolRole: NAME`,
}

var headPattern = regexp.MustCompile(`(?m)^\{\{(\w+) ?(\S*)\}\}`)

// wrongCase is one command line with wrong files.
type wrongCase struct {
	title   string
	command []string
	files   map[string]string
	places  []string // FILE:LINE of each message, in order
	others  []string // FILE:LINE of each place that messages name too
}

// readCases reads a table of wrong files.
func readCases(path string) (cases []wrongCase) {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	for one := range strings.SplitSeq(strings.TrimPrefix(string(text), "=== "), "\n=== ") {
		head, files, _ := strings.Cut(one, "\n--- ")
		title, command, _ := strings.Cut(head, "\n")
		c := wrongCase{title: title, command: strings.Fields(command), files: map[string]string{}}
		for file := range strings.SplitSeq(files, "\n--- ") {
			name, content, _ := strings.Cut(file, "\n")
			content = headPattern.ReplaceAllStringFunc(content, func(head string) string {
				match := headPattern.FindStringSubmatch(head)
				return strings.ReplaceAll(heads[match[1]], "NAME", match[2])
			})
			for i, line := range strings.Split(content, "\n") {
				for range strings.Count(line, mark) {
					c.places = append(c.places, fmt.Sprintf("%s:%d", name, i+1))
				}
				if strings.Contains(line, otherMark) {
					c.others = append(c.others, fmt.Sprintf("%s:%d", name, i+1))
				}
			}
			c.files[name] = strings.NewReplacer(mark, "", otherMark, "").Replace(content) + "\n"
		}
		cases = append(cases, c)
	}
	return cases
}

// run runs the command line in a directory with the files, and returns the messages.
func (c wrongCase) run() []string {
	GinkgoHelper()
	directory := GinkgoT().TempDir()
	for name, content := range c.files {
		clitest.WriteFileIn(directory, name, content)
	}
	GinkgoT().Chdir(directory)
	r := runPoolboot(c.command...)
	return strings.Split(strings.TrimSuffix(r.ErrOut, "\n"), "\n")
}

var (
	messagePlace = regexp.MustCompile(`^(?:(error|warning|note|refused): )?([\w./-]+): (?:document \d+: )?(?:item \d+: )*line (\d+): (.*)$`)
	// otherPlace matches a place within a message.
	otherPlace = regexp.MustCompile(`\(([\w./-]+): (?:document \d+: )?(?:item \d+: )*line (\d+)\)`)
	// withoutPlace matches notes about what no file contains.
	withoutPlace = regexp.MustCompile(`^note: (MachineConfigPool "\w+" is added|the settings of container runtimes)`)
	// internal matches words of Go, of JSON, of the command line's library and of inner documents.
	internal = regexp.MustCompile(`\b[a-z]\w*\.[A-Z]\w+\b|v1alpha1\.|json:|map\[|interface ?\{|\bint(32|64)?\b|\bstruct\b|\bGo (value|struct)|` +
		`unmarshal|strict decoding|\(line \d+\)|JSON (string|number|object|array|bool)|flags in the group|: : |<nil>|%!|Invalid value: ""|\[spec\.`)
	// remedy matches what to do about an error.
	remedy = regexp.MustCompile(`\b(set|remove|correct|use|write|render|convert|leave|add|name|change|choose|create|delete|give|quote|put|move|copy|select)\b|must |supported|requires`)
)

var _ = Describe("Messages about wrong files name the line in the file, the field and the remedy", func() {
	tables, err := filepath.Glob("testdata/messages/*.txt")
	if err != nil || len(tables) == 0 {
		panic(fmt.Sprint("no tables: ", err))
	}
	for _, table := range tables {
		for _, c := range readCases(table) {
			It(strings.TrimSuffix(filepath.Base(table), ".txt")+": "+c.title, func() {
				var places []string
				others := sets.New[string]()
				messages := c.run()
				for _, message := range messages {
					if withoutPlace.MatchString(message) {
						continue
					}
					Expect(message).To(MatchRegexp(messagePlace.String()))
					match := messagePlace.FindStringSubmatch(message)
					places = append(places, match[2]+":"+match[3])
					for _, other := range otherPlace.FindAllStringSubmatch(match[4], -1) {
						others.Insert(other[1] + ":" + other[2])
					}
					Expect(match[4]).NotTo(MatchRegexp(internal.String()))
					if match[1] != "note" && match[1] != "warning" {
						Expect(match[4]).To(MatchRegexp(remedy.String()))
					}
				}
				Expect(places).To(Equal(c.places), strings.Join(messages, "\n"))
				Expect(others).To(Equal(sets.New(c.others...)), strings.Join(messages, "\n"))
			})
		}
	}
})
