// Package butane translates Butane configurations to Ignition. It is apart from package ignition because it is large,
// and running hosts need it not.
package butane

import (
	"errors"
	"fmt"
	"io"
	"strings"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
	"go.yaml.in/yaml/v3"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Variant returns the variant of a Butane configuration, and "" if it has none or is not YAML.
func Variant(text string) string {
	var head struct {
		Variant string `yaml:"variant"`
	}
	if yaml.Unmarshal([]byte(text), &head) != nil {
		return ""
	}
	return head.Variant
}

// VariantOpenShift is the variant of Butane for OpenShift's MachineConfigs.
const VariantOpenShift = "openshift"

// Parse translates a Butane configuration (YAML) to Ignition. It is as strict as "butane --strict": warnings are
// errors, because Butane only warns of keys that it ignores. Local files can't be embedded. Errors are an
// *ignition.ParseError with path and line in the Butane text.
func Parse(text string) (ignition.Config, error) { return ParseWithFiles(text, "") }

// ParseWithFiles is Parse for a configuration with local files, which are below a folder. It does not prevent links
// from leading out of the folder.
func ParseWithFiles(text, folder string) (ignition.Config, error) {
	raw, err := translate(text, folder, true)
	if err != nil {
		return ignition.Config{}, err
	}
	config, err := ignition.Parse(raw)
	if malformed := (*ignition.ParseError)(nil); errors.As(err, &malformed) && malformed.Problems[0].Path != "ignition.version" {
		for i := range malformed.Problems {
			malformed.Problems[i].Line = 0 // of the translation
		}
		return ignition.Config{}, malformed
	}
	if err != nil {
		return ignition.Config{}, newError("version", fmt.Sprintf("translates to Ignition that can't be read, use an older version: %v", err))
	}
	return config, nil
}

// ParseMachineConfig translates a Butane configuration of VariantOpenShift to a whole MachineConfig of OpenShift, in
// YAML: with its name, its labels, kernel arguments and extensions. The folder is that of ParseWithFiles.
func ParseMachineConfig(text, folder string) ([]byte, error) { return translate(text, folder, false) }

// translate translates a Butane configuration to Ignition or, of VariantOpenShift, to a MachineConfig.
func translate(text, folder string, onlyIgnition bool) ([]byte, error) {
	if err := checkDocuments(text); err != nil {
		return nil, err
	}
	translated, entries, err := butane.TranslateBytes([]byte(text), common.TranslateBytesOptions{
		TranslateOptions: common.TranslateOptions{
			FilesDir: folder,
			// The output of a compressor can change with its version, and would change the name of a rendered config.
			NoResourceAutoCompression: true,
		},
		Raw: onlyIgnition,
	})
	var problems []ignition.Problem
	for _, entry := range entries.Entries {
		problem := ignition.NewProblem(entry)
		if entry.Message == common.ErrNoFilesDir.Error() {
			problem.Message = "local files are not available here: write the contents into the document, or translate it with kubectl poolboot convert --butane FILE --files-dir FOLDER"
		}
		problems = append(problems, problem)
	}
	switch {
	case len(problems) > 0:
		return nil, &ignition.ParseError{Problems: ignition.LimitProblems(problems)}
	case err != nil:
		return nil, explain(text, err)
	}
	return translated, nil
}

// checkDocuments refuses what is too much work for Butane, and documents after the first one, which Butane does not
// read. Empty ones are no loss.
func checkDocuments(text string) error {
	documents := yaml.NewDecoder(strings.NewReader(text))
	var document yaml.Node
	if documents.Decode(&document) != nil {
		return nil //nolint:nilerr // Butane reports it.
	}
	if err := checkSize(&document); err != nil {
		return err
	}
	for {
		err := documents.Decode(&document)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			explained := explainYAML(err.Error())
			if strings.Contains(err.Error(), "<document start>") {
				explained.Problems[0].Line++ // the parser counts these lines from 0
			}
			return explained
		}
		if first := document.Content[0]; first.ShortTag() != "!!null" {
			return &ignition.ParseError{Problems: []ignition.Problem{{Line: int64(first.Line),
				Message: "a second document, which Butane does not read: move it to a file of its own, or remove it"}}}
		}
	}
}

func newError(path, message string) *ignition.ParseError {
	return &ignition.ParseError{Problems: []ignition.Problem{{Path: path, Message: message}}}
}
