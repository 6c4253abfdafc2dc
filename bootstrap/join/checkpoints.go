package join

import (
	"github.com/coreos/go-systemd/v22/unit"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// kubeletDirectory is where the kubelet keeps its state.
const kubeletDirectory = "/var/lib/kubelet"

// checkpointsUnit returns the unit that removes the kubelet's checkpoints of which CPUs and memory it has pinned to
// which Pods. The kubelet does not start with checkpoints that do not fit its configuration, its version or the
// hardware. They are about running containers, and the unit runs when there are none: before the kubelet starts for the
// first time in a boot, and after a drain, for an update that stops the unit.
func checkpointsUnit() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Remove the checkpoints of CPUs and memory that an earlier kubelet left"),
		unit.NewUnitOption("Unit", "RequiresMountsFor", kubeletDirectory),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "ExecStart", "/usr/bin/rm -f "+kubeletDirectory+"/cpu_manager_state "+kubeletDirectory+"/memory_manager_state"),
	}
}

// followsCheckpoints returns the settings with which the kubelet starts after that unit, and stops before it. The
// kubelet also starts if the unit fails. A drop-in cannot remove the settings.
func followsCheckpoints() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Wants", ignition.CheckpointsUnit),
		unit.NewUnitOption("Unit", "After", ignition.CheckpointsUnit),
		unit.NewUnitOption("Unit", "PartOf", ignition.CheckpointsUnit),
	}
}
