package pool

import (
	"errors"
	"io"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// wrapperParts returns the drop-in that starts the kubelet through the kubelet wrapper of the pool or, if it has none,
// of worker. Without a wrapper it returns nothing.
func wrapperParts(p, worker *poolv1.MachineConfigPool) []part {
	of := p
	if len(of.Spec.Kubelet.Wrapper) == 0 {
		of = worker
	}
	if of == nil || len(of.Spec.Kubelet.Wrapper) == 0 {
		return nil
	}
	// With the join type Kubelet, the environment file of the unit overrides the default path.
	text := &strings.Builder{}
	_, _ = io.Copy(text, unit.Serialize([]*unit.UnitOption{ // a copy in memory does not fail
		unit.NewUnitOption("Service", "Environment", ignition.KubeletCommandVariable+"="+bootstrapv1.DefaultKubeletPath),
		unit.NewUnitOption("Service", "ExecStart", ""),
		unit.NewUnitOption("Service", "ExecStart", strings.Join(of.Spec.Kubelet.Wrapper, " ")+" "+ignition.WrappedKubelet),
	}))
	config := ignition.New()
	config.Systemd.Units = []types.Unit{{Name: ignition.KubeletUnit,
		Dropins: []types.Dropin{{Name: ignition.WrapperDropin, Contents: ptr.To(text.String())}}}}
	return []part{{config: config, pool: of.Name, field: "spec.kubelet.wrapper"}}
}

// checkWrapper refuses a kubelet wrapper that Poolboot's guard refuses.
func checkWrapper(p *poolv1.MachineConfigPool) error {
	var guarded *ignition.GuardError
	if !errors.As(ignition.GuardWrapper(p.Spec.Kubelet.Wrapper), &guarded) {
		return nil
	}
	var errs field.ErrorList
	for _, entry := range guarded.Entries {
		errs = append(errs, field.Forbidden(field.NewPath("spec.kubelet.wrapper"+entry.Path), entry.Why))
	}
	return &KubeletError{Pool: p.Name, Errs: errs}
}
