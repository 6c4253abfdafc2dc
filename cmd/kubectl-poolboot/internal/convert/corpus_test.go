package convert

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// corpusVariable names a folder that hack/openshift-corpus.sh filled.
const corpusVariable = "POOLBOOT_OPENSHIFT_CORPUS"

// separator is a line between two documents of a file.
var separator = regexp.MustCompile(`(?m)^---.*$`)

// openShiftKinds are the kinds of objects that convert reads.
var openShiftKinds = []string{"MachineConfig", "MachineConfigPool", "KubeletConfig", "MachineConfiguration"}

// isRead reports whether an object is one of OpenShift's that convert reads.
func isRead(object unstructured.Unstructured) bool {
	group := object.GroupVersionKind().Group
	return slices.Contains(openShiftKinds, object.GetKind()) && strings.HasSuffix(group, ".openshift.io")
}

var _ = Describe("Corpus: convert, of public documents", func() {
	It("loses no object and no Ignition silently", func() {
		folder := os.Getenv(corpusVariable)
		if folder == "" {
			Skip("set " + corpusVariable + " to a folder that hack/openshift-corpus.sh filled")
		}
		counts, reasons := map[string]int{}, map[string]int{}
		var silent []string
		Expect(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".bu", ".fcc"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, document := range separator.Split(string(text), -1) {
				var object unstructured.Unstructured
				if yaml.Unmarshal([]byte(document), &object.Object) != nil {
					continue
				}
				if object.Object["variant"] != nil && object.Object["version"] != nil {
					r := runWithInput(document, "convert", "--butane", "-")
					counts[fmt.Sprintf("Butane with exit code %d", r.Code)]++
					if r.Code != 0 {
						reasons["Butane: "+strings.TrimSpace(r.ErrOut)+" ("+strings.TrimPrefix(path, folder)+")"]++
					}
					continue
				}
				if !isRead(object) {
					continue
				}
				r := runWithInput(document, "convert", "-f", "-", "--skip-refused", "--cluster", "c", "-n", "n")
				outcome := judge(object, r.Code, r.Out, r.ErrOut)
				counts[outcome]++
				if outcome == "silently lost" {
					silent = append(silent, path+": "+object.GetName())
				}
				for line := range strings.Lines(r.ErrOut) {
					if strings.HasPrefix(line, "refused: ") {
						reasons[strings.TrimSpace(line)+" ("+strings.TrimPrefix(path, folder)+")"]++
					}
				}
			}
			return nil
		})).To(Succeed())
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintln(GinkgoWriter, reasons[reason], reason)
		}
		for _, outcome := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintln(GinkgoWriter, counts[outcome], outcome)
		}
		Expect(counts).NotTo(BeEmpty())
		Expect(silent).To(BeEmpty())
	})
})

// judge returns what became of an object.
func judge(object unstructured.Unstructured, code int, out, errOut string) string {
	switch {
	case code != 0 && strings.Contains(errOut, "refused: "):
		return "refused"
	case strings.Contains(errOut, fmt.Sprintf("%s %q is left out", object.GetKind(), object.GetName())):
		return "left out with a reason"
	case object.GetKind() == "KubeletConfig" && strings.Contains(out, "kubeletConfiguration:"),
		object.GetKind() == "MachineConfiguration":
		return "accepted"
	}
	for _, document := range bytes.Split([]byte(out), []byte("\n---\n")) {
		var converted unstructured.Unstructured
		if yaml.Unmarshal(document, &converted.Object) != nil || converted.GetKind() != object.GetKind() || converted.GetName() != object.GetName() {
			continue
		}
		before, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "config")
		after, _, _ := unstructured.NestedFieldNoCopy(converted.Object, "spec", "config")
		was, _ := yaml.Marshal(before)
		is, _ := yaml.Marshal(after)
		if bytes.Equal(was, is) {
			return "accepted"
		}
		if strings.Contains(errOut, fmt.Sprintf("MachineConfig %q: ExecStart of the drop-in", object.GetName())) && strings.Contains(out, "kubeletWrapper:") ||
			strings.Contains(errOut, "set spec.kubeletWrapper: [") {
			return "accepted, with a command that is moved to the pool"
		}
	}
	return "silently lost"
}
