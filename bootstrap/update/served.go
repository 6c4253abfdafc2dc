package update

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var errNotServed = errors.New("the document is not a served rendered config: it has no file " + ignition.MachineConfigPath)

// ParseServed returns the name and the configuration of a rendered config as the config server serves it: Ignition with
// the other fields in the file ignition.MachineConfigPath, which stays in the configuration.
func ParseServed(document []byte) (name string, config Config, err error) {
	if config.Ignition, err = ignition.Parse(document); err != nil {
		return "", Config{}, err
	}
	files := config.Ignition.Storage.Files
	i := slices.IndexFunc(files, func(file types.File) bool { return file.Path == ignition.MachineConfigPath })
	if i < 0 {
		return "", Config{}, errNotServed
	}
	var rest ignition.MachineConfigFile
	raw, err := hosttree.Decode(files[i].Contents, nil)
	if err == nil {
		err = json.Unmarshal(raw, &rest)
	}
	if err != nil {
		return "", Config{}, fmt.Errorf("%s: %w", ignition.MachineConfigPath, err)
	}
	config.FIPS, config.KernelArguments = rest.FIPS, rest.KernelArguments
	config.OS = OperatingSystem{Image: rest.OSImageURL, ExtensionsImage: rest.BaseOSExtensionsContainerImage, KernelType: rest.KernelType, Extensions: rest.Extensions}
	// The config server also writes them for Ignition.
	own := ignition.SplitArguments(rest.KernelArguments)
	config.Ignition.KernelArguments.ShouldExist = slices.DeleteFunc(config.Ignition.KernelArguments.ShouldExist, func(argument types.KernelArgument) bool {
		return slices.Contains(own, string(argument))
	})
	return rest.Name, config, nil
}
