package join

import (
	"path"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// kubeletCertificate stands once the kubelet has its client certificate, and with it a host has joined. The kubelet's
// kubeconfig says less: it is written before the certificate is asked for.
const kubeletCertificate = ignition.KubeletPKIDirectory + "/kubelet-client-current.pem"

// joinedUnits write the file by which Cluster API knows that a host has joined.
func joinedUnits() []types.Unit {
	return []types.Unit{
		enabledUnit("poolboot-joined.path", joinedPath()),
		systemdUnit("poolboot-joined.service", joinedService()),
	}
}

// joinedPath starts joinedService when the kubelet has its client certificate, at the first boot and at every later
// one.
func joinedPath() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Wait for the kubelet's client certificate"),
		unit.NewUnitOption("Path", "PathExists", kubeletCertificate),
		atBoot(),
	}
}

// joinedService writes the sentinel. It stays active, so that its path unit does not start it over and over.
func joinedService() []*unit.UnitOption {
	return []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Tell Cluster API that this host has joined"),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "ExecStart", "/usr/bin/mkdir -p "+path.Dir(ignition.SentinelPath)),
		unit.NewUnitOption("Service", "ExecStart", "/usr/bin/touch "+ignition.SentinelPath),
	}
}
