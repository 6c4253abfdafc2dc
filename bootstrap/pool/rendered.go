package pool

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// ParseRendered returns the configuration in the spec of a rendered config, Poolboot's or OpenShift's. Errors name the
// field and the remedy.
func ParseRendered(spec poolv1.MachineConfigSpec) (update.Config, error) {
	config, err := ignition.New(), error(nil)
	switch {
	case spec.Butane != "":
		return update.Config{}, errors.New("spec.butane: a rendered config has Ignition only: use what the pool renders")
	case spec.Config != nil && len(spec.Config.Raw) > 0:
		config, err = ignition.Parse(spec.Config.Raw)
	}
	if err != nil {
		return update.Config{}, fmt.Errorf("spec.config: %w", err)
	}
	return update.Config{
		Ignition: config, KernelArguments: spec.KernelArguments, FIPS: ptr.Deref(spec.FIPS, false),
		OS: update.OperatingSystem{
			Image: spec.OSImageURL, ExtensionsImage: spec.BaseOSExtensionsContainerImage,
			KernelType: cmp.Or(spec.KernelType, poolv1.KernelTypeDefault), Extensions: spec.Extensions,
		},
	}, nil
}
