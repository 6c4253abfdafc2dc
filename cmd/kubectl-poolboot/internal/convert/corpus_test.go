package convert

import (
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
var openShiftKinds = []string{"MachineConfig", "MachineConfigPool", "KubeletConfig", "MachineConfiguration", "ContainerRuntimeConfig",
	"ImageDigestMirrorSet", "ImageTagMirrorSet", "ImageContentSourcePolicy"}

// isRead reports whether an object is one of OpenShift's that convert reads.
func isRead(object unstructured.Unstructured) bool {
	group := object.GroupVersionKind().Group
	return slices.Contains(openShiftKinds, object.GetKind()) && strings.HasSuffix(group, ".openshift.io")
}

var _ = Describe("Corpus: convert, of public documents", func() {
	It("loses no object and no field silently", func() {
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
					if r.Code == 0 {
						if lost := lostByButane(document, r.Out); len(lost) > 0 {
							silent = append(silent, fmt.Sprintf("%s: %v", path, lost))
						}
					} else {
						reasons["Butane: "+strings.TrimSpace(r.ErrOut)+" ("+strings.TrimPrefix(path, folder)+")"]++
					}
					continue
				}
				if !isRead(object) {
					continue
				}
				if kind := object.GetKind(); kind == "KubeletConfig" || kind == "ContainerRuntimeConfig" {
					document += poolFor(object)
				}
				r := runWithInput(document, "convert", "-f", "-", "--skip-refused", "--cluster", "c", "-n", "n", "--container-runtime", "crio")
				outcome, lost := judge(object, r.Code, r.Out, r.ErrOut)
				counts[object.GetKind()+" "+outcome]++
				if len(lost) > 0 {
					slices.Sort(lost)
					silent = append(silent, fmt.Sprintf("%s: %s %s: %v", path, object.GetKind(), object.GetName(), lost))
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
		Expect(silent).To(BeEmpty(), strings.Join(silent, "\n"))
	})
})
