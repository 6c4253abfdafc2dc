package pool

import (
	_ "embed" // system-reserved.sh
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

//go:embed system-reserved.sh
var reservedScript []byte

// Files from which the script reads the size of a host.
const (
	meminfoPath    = "/proc/meminfo"
	onlineCPUsPath = "/sys/devices/system/cpu/online"
)

// reservedParts returns what computes the reservation for the system on a host, for autoSizingReserved of the pool or,
// if it is not set there, of worker: a script, the drop-in that runs it before the kubelet, and a link to what it
// writes. The computed drop-in is in /run, and the link belongs to the rendered config, so that nothing remains when
// the setting is removed.
func reservedParts(p, worker *poolv1.MachineConfigPool) []part {
	of := p
	if of.Spec.Kubelet.AutoSizingReserved == nil {
		of = worker
	}
	if of == nil || !ptr.Deref(of.Spec.Kubelet.AutoSizingReserved, false) {
		return nil
	}
	link := ignition.PoolReservedPath
	if of.Spec.PoolRole == poolv1.RoleWorker {
		link = ignition.WorkerReservedPath
	}
	text := &strings.Builder{}
	_, _ = io.Copy(text, unit.Serialize([]*unit.UnitOption{ // a copy in memory does not fail
		unit.NewUnitOption("Service", "ExecStartPre",
			strings.Join([]string{"/bin/sh", ignition.ReservedScriptPath, meminfoPath, onlineCPUsPath, ignition.ReservedOutputPath}, " ")),
	}))
	config := ignition.New()
	config.Storage.Files = []types.File{{
		Node: types.Node{Path: ignition.ReservedScriptPath, Overwrite: ptr.To(true)},
		FileEmbedded1: types.FileEmbedded1{
			Contents: types.Resource{Source: ptr.To(dataurl.EncodeBytes(reservedScript))}, Mode: ptr.To(kubeletMode),
		},
	}}
	config.Storage.Links = []types.Link{{
		Node:          types.Node{Path: link, Overwrite: ptr.To(true)},
		LinkEmbedded1: types.LinkEmbedded1{Target: ptr.To(ignition.ReservedOutputPath)},
	}}
	config.Systemd.Units = []types.Unit{{Name: ignition.KubeletUnit,
		Dropins: []types.Dropin{{Name: ignition.ReservedDropin, Contents: ptr.To(text.String())}}}}
	return []part{{config: config, pool: of.Name, field: "spec.kubelet.autoSizingReserved"}}
}

// checkReserved refuses a pool that both computes and sets what the kubelet reserves for the system, as OpenShift does.
func checkReserved(section kubeletSection, p *poolv1.MachineConfigPool) error {
	if !ptr.Deref(p.Spec.Kubelet.AutoSizingReserved, false) || !section.Has("systemReserved") {
		return nil
	}
	return &KubeletError{Pool: p.Name, Errs: field.ErrorList{field.Forbidden(kubeletField.Child("systemReserved"),
		"kubelet.autoSizingReserved computes it on each host: remove one of them")}}
}

// reservedNotes says which reservation for the system applies if one of a custom pool and worker computes it and the
// other one sets it: that of the custom pool, resource by resource, because its drop-ins have the later names.
func reservedNotes(p, worker *poolv1.MachineConfigPool) (notes []string) {
	if worker == nil {
		return nil
	}
	const field = "systemReserved"
	computed := []string{"cpu", "ephemeral-storage", "memory"}
	setBy := func(p *poolv1.MachineConfigPool) []string { // of those that autoSizingReserved computes
		section, _ := kubeletSectionOf(p) // its errors are returned before
		return slices.DeleteFunc(section.Keys(field), func(resource string) bool { return !slices.Contains(computed, resource) })
	}
	own, ofWorker := setBy(p), setBy(worker)
	switch {
	case p.Spec.Kubelet.AutoSizingReserved == nil && ptr.Deref(worker.Spec.Kubelet.AutoSizingReserved, false) && len(own) > 0:
		note := fmt.Sprintf("MachineConfigPool %q: %s: it overrides what spec.kubelet.autoSizingReserved of the worker pool computes for %s",
			p.Name, kubeletField.Child(field), strings.Join(own, ", "))
		if left := slices.DeleteFunc(computed, func(resource string) bool { return slices.Contains(own, resource) }); len(left) > 0 {
			note += fmt.Sprintf(", but not for %s: to compute nothing, set spec.kubelet.autoSizingReserved to false", strings.Join(left, ", "))
		}
		return []string{note}
	case ptr.Deref(p.Spec.Kubelet.AutoSizingReserved, false) && len(ofWorker) > 0:
		return []string{fmt.Sprintf("MachineConfigPool %q: spec.kubelet.autoSizingReserved: what it computes overrides %s in %s of the worker pool", p.Name,
			strings.Join(ofWorker, ", "), kubeletField.Child(field))}
	}
	return nil
}
