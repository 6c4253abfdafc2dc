package pool

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// beyondIgnition is what ignition.MachineConfigPath holds: the parts of a rendered config that Ignition has no words
// for, for the operating system's agent.
type beyondIgnition struct {
	Name            string   `json:"name"`
	KernelType      string   `json:"kernelType"`
	Extensions      []string `json:"extensions"`
	FIPS            bool     `json:"fips"`
	OSImageURL      string   `json:"osImageURL"`
	KernelArguments []string `json:"kernelArguments"`
	// BaseOSExtensionsContainerImage came later than the others. What a rendered config without it is served as stays
	// as it was.
	BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage,omitempty"`
}

// machineConfigMode lets everybody on the host read the file: it holds no secret.
const machineConfigMode = 0o644

// Served returns the bytes that the config server hands out for a rendered config: its Ignition, its kernel arguments
// as Ignition's, and the file ignition.MachineConfigPath with the rest. The same config gives the same bytes.
func Served(name string, spec poolv1.MachineConfigSpec) ([]byte, error) {
	config := ignition.New()
	if spec.Config != nil {
		var err error
		if config, err = ignition.Parse(spec.Config.Raw); err != nil {
			return nil, fmt.Errorf("MachineConfig %q: spec.config: %w", name, err)
		}
	}
	rest, err := json.Marshal(beyondIgnition{
		Name:            name,
		KernelType:      spec.KernelType,
		Extensions:      orEmpty(spec.Extensions),
		FIPS:            spec.FIPS != nil && *spec.FIPS,
		OSImageURL:      spec.OSImageURL,
		KernelArguments: orEmpty(spec.KernelArguments),

		BaseOSExtensionsContainerImage: spec.BaseOSExtensionsContainerImage,
	})
	if err != nil {
		return nil, err
	}
	own := ignition.New()
	own.KernelArguments.ShouldExist = distinct(spec.KernelArguments)
	source, mode := dataurl.EncodeBytes(rest), machineConfigMode
	own.Storage.Files = []types.File{{
		Node:          types.Node{Path: ignition.MachineConfigPath},
		FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: &source}, Mode: &mode},
	}}
	return ignition.Marshal(ignition.Merge(config, own))
}

// oneArgument is one argument of a kernel command line: no space outside of quotes.
var oneArgument = regexp.MustCompile(`(?:[^\s"]|"[^"]*"?)+`)

// distinct are the single arguments, each where it was first named: Ignition takes each once, and would take several in
// one string for one.
func distinct(arguments []string) (out []types.KernelArgument) {
	seen := map[string]bool{}
	for _, argument := range oneArgument.FindAllString(strings.Join(arguments, " "), -1) {
		if !seen[argument] {
			seen[argument] = true
			out = append(out, types.KernelArgument(argument))
		}
	}
	return out
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
