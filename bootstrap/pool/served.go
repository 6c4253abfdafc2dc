package pool

import (
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// machineConfigMode makes the file readable for all users of the host: it holds no secret.
const machineConfigMode = 0o644

// Served returns the bytes that the config server serves for a rendered config: its Ignition, its kernel arguments as
// those of Ignition, and the file ignition.MachineConfigPath with the other fields. The same config always gives the
// same bytes.
func Served(name string, spec poolv1.MachineConfigSpec) ([]byte, error) {
	config := ignition.New()
	if spec.Config != nil {
		var err error
		if config, err = ignition.Parse(spec.Config.Raw); err != nil {
			return nil, fmt.Errorf("MachineConfig %q: spec.config: %w", name, err)
		}
	}
	rest, err := json.Marshal(ignition.MachineConfigFile{
		Name:            name,
		KernelType:      spec.KernelType,
		Extensions:      append([]string{}, spec.Extensions...),
		FIPS:            ptr.Deref(spec.FIPS, false),
		OSImageURL:      spec.OSImageURL,
		KernelArguments: append([]string{}, spec.KernelArguments...),

		BaseOSExtensionsContainerImage: spec.BaseOSExtensionsContainerImage,
	})
	if err != nil {
		return nil, err
	}
	own := ignition.New()
	own.KernelArguments.ShouldExist = splitArguments(spec.KernelArguments)
	own.Storage.Files = []types.File{{
		Node:          types.Node{Path: ignition.MachineConfigPath},
		FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: ptr.To(dataurl.EncodeBytes(rest))}, Mode: ptr.To(machineConfigMode)},
	}}
	return ignition.Marshal(ignition.Merge(config, own))
}

// ServedHash returns the SHA-512, in hex, of the bytes that Served returns. Hosts verify it.
func ServedHash(served []byte) string {
	sum := sha512.Sum512(served)
	return hex.EncodeToString(sum[:])
}

// splitArguments splits arguments and removes duplicates: Ignition accepts each argument once, and treats a string
// with several arguments as one.
func splitArguments(arguments []string) (out []types.KernelArgument) {
	seen := map[string]bool{}
	for _, argument := range ignition.SplitArguments(arguments) {
		if !seen[argument] {
			seen[argument] = true
			out = append(out, types.KernelArgument(argument))
		}
	}
	return out
}

// FindExternalCloudProvider returns the entry of a rendered config that starts the kubelet with
// --cloud-provider=external, or "" if there is none.
func FindExternalCloudProvider(rendered *poolv1.MachineConfig) (string, error) {
	config := ignition.New()
	if rendered.Spec.Config != nil {
		var err error
		if config, err = ignition.Parse(rendered.Spec.Config.Raw); err != nil {
			return "", fmt.Errorf("MachineConfig %q: spec.config: %w", rendered.Name, err)
		}
	}
	config.KernelArguments.ShouldExist = append(config.KernelArguments.ShouldExist, splitArguments(rendered.Spec.KernelArguments)...)
	entry := ignition.FindExternalCloudProvider(config)
	if entry == "" {
		return "", nil
	}
	return fmt.Sprintf("MachineConfig %s (%s)", klog.KObj(rendered), entry), nil
}
