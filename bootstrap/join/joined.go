package join

import (
	"path"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// kubeletCertificate is the client certificate of the kubelet. When it exists, the host has joined. The kubeconfig of
// the kubelet does not show this: the kubelet writes it before it requests the certificate.
const kubeletCertificate = ignition.KubeletPKIDirectory + "/kubelet-client-current.pem"

// sentinelUnits returns the units that create the sentinel file of Cluster API when the host has joined.
func sentinelUnits() []types.Unit {
	return []types.Unit{
		// starts the service when the kubelet has its client certificate, at every boot
		newEnabledUnit("poolboot-joined.path", []*unit.UnitOption{
			unit.NewUnitOption("Unit", "Description", "Wait for the kubelet's client certificate"),
			unit.NewUnitOption("Path", "PathExists", kubeletCertificate),
			wantedByMultiUser(),
		}),
		// stays active: otherwise, the path unit would start it repeatedly
		newUnit("poolboot-joined.service", []*unit.UnitOption{
			unit.NewUnitOption("Unit", "Description", "Create the sentinel file of Cluster API"),
			unit.NewUnitOption("Service", "Type", "oneshot"),
			unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
			unit.NewUnitOption("Service", "ExecStart", "/usr/bin/mkdir -p "+path.Dir(ignition.SentinelPath)),
			unit.NewUnitOption("Service", "ExecStart", "/usr/bin/touch "+ignition.SentinelPath),
		}),
	}
}
