package join

import (
	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

func dependenciesTarget() types.Unit {
	return newUnit(ignition.DependenciesTarget, []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Units that start before the kubelet"),
	})
}

// wantsDependencies returns the settings with which the kubelet starts after the target. A failed or masked target does
// not keep a host from joining.
func wantsDependencies() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Wants", ignition.DependenciesTarget),
		unit.NewUnitOption("Unit", "After", ignition.DependenciesTarget),
	}
}
