package pool

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
)

// KubeletError is the error for a kubelet configuration or a kubelet wrapper of a pool that can't be used.
type KubeletError struct {
	// Pool is the name of the pool with that setting.
	Pool string
	// Errs are the errors, with the path of each field. There is at least one.
	Errs field.ErrorList
	// Inherited is true if the kubelet configuration is valid by itself, but not together with that of worker.
	Inherited bool
}

// Error names the pool, the fields and the remedies.
func (e *KubeletError) Error() string {
	return fmt.Sprintf("MachineConfigPool %q: %v", e.Pool, e.Explain().ToAggregate())
}

// Explain returns the errors. With Inherited, each says that the pool inherits fields.
func (e *KubeletError) Explain() (errs field.ErrorList) {
	for _, err := range e.Errs {
		explained := *err
		if e.Inherited {
			explained.Detail += " (it inherits fields of the worker pool)"
		}
		errs = append(errs, &explained)
	}
	return errs
}

// CheckKubelet validates the kubelet wrapper of a pool, and its kubelet configuration by itself and together with that
// of the worker pool. worker is nil if there is none, or if the pool does not inherit from it. The error is a
// *KubeletError; its Pool is the worker pool if that one is invalid.
func CheckKubelet(p, worker *poolv1.MachineConfigPool) error {
	_, err := kubeletSections(p, worker)
	return err
}

// kubeletSection is the kubelet configuration of one pool, and the path of its drop-in on a host.
type kubeletSection struct {
	kubelet.Section
	pool, path string
}

var kubeletField = field.NewPath("spec", "kubelet", "configuration")

// kubeletSections returns the section of worker, if the pool inherits from it, and that of the pool itself.
func kubeletSections(p, worker *poolv1.MachineConfigPool) ([]kubeletSection, error) {
	var base []kubeletSection
	if worker != nil {
		var err error
		if base, err = kubeletSections(worker, nil); err != nil {
			return nil, err
		}
	}
	own, err := kubeletSectionOf(p)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(checkReserved(own, p), checkStaticPods(own, p), checkWrapper(p)); err != nil {
		return nil, err
	}
	merged := own.Section
	var inherited kubelet.Section
	if len(base) > 0 {
		inherited = base[0].Section
	}
	if errs := own.CheckOver(inherited, kubeletField); len(errs) > 0 {
		return nil, &KubeletError{Pool: p.Name, Errs: errs}
	}
	if len(base) > 0 {
		if merged, err = own.MergeOver(inherited); err != nil {
			return nil, fmt.Errorf("MachineConfigPool %q: spec.kubelet.configuration: %w", p.Name, err)
		}
	}
	check := func(section kubelet.Section, of *bool) field.ErrorList {
		return append(section.Check(kubeletField), section.CheckReservations(kubeletField, ptr.Deref(of, false))...)
	}
	computes := p.Spec.Kubelet.AutoSizingReserved
	if computes == nil && worker != nil {
		computes = worker.Spec.Kubelet.AutoSizingReserved
	}
	if errs := check(merged, computes); len(errs) > 0 {
		return nil, &KubeletError{Pool: p.Name, Errs: errs, Inherited: len(check(own.Section, p.Spec.Kubelet.AutoSizingReserved)) == 0}
	}
	return append(base, own), nil
}

// checkStaticPods refuses that a pool for the control plane disables static Pods, in which it runs.
func checkStaticPods(section kubeletSection, p *poolv1.MachineConfigPool) error {
	if p.Spec.PoolRole != poolv1.RoleControlPlane || !section.Has("staticPodPath") {
		return nil
	}
	return &KubeletError{Pool: p.Name, Errs: field.ErrorList{field.Forbidden(kubeletField.Child("staticPodPath"), "the control plane runs in static Pods: remove it")}}
}

func kubeletSectionOf(p *poolv1.MachineConfigPool) (kubeletSection, error) {
	out := kubeletSection{pool: p.Name, path: ignition.PoolKubeletPath}
	if p.Spec.PoolRole == poolv1.RoleWorker {
		out.path = ignition.WorkerKubeletPath
	}
	if p.Spec.Kubelet.Configuration == nil || len(p.Spec.Kubelet.Configuration.Raw) == 0 {
		return out, nil
	}
	var errs field.ErrorList
	if out.Section, errs = kubelet.Parse(p.Spec.Kubelet.Configuration.Raw, kubeletField); len(errs) > 0 {
		return out, &KubeletError{Pool: p.Name, Errs: append(errs, out.Check(kubeletField)...)}
	}
	return out, nil
}

// kubeletMode makes a drop-in readable for all users of the host: it holds no secret.
const kubeletMode = 0o644

// kubeletParts returns the drop-ins for the kubelet sections of worker and of the pool. An empty section has no
// drop-in.
func kubeletParts(p, worker *poolv1.MachineConfigPool) ([]part, error) {
	sections, err := kubeletSections(p, worker)
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, section := range sections {
		if section.IsEmpty() {
			continue
		}
		text, err := section.DropIn("spec.kubelet.configuration of the MachineConfigPool " + section.pool)
		if err != nil {
			return nil, err
		}
		config := ignition.New()
		config.Storage.Files = []types.File{{
			Node: types.Node{Path: section.path, Overwrite: ptr.To(true)},
			FileEmbedded1: types.FileEmbedded1{
				Contents: types.Resource{Source: ptr.To(dataurl.EncodeBytes(text))}, Mode: ptr.To(kubeletMode),
			},
		}}
		parts = append(parts, part{config: config, pool: section.pool, field: kubeletField.String()})
	}
	return parts, nil
}

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
