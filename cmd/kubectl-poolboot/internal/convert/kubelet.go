package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// refusedFields are fields that OpenShift refuses in a KubeletConfig and Poolboot accepts.
var refusedFields = []string{"clusterDNS", "clusterDomain", "featureGates"}

// setKubeletSections sets the kubelet sections of pools from OpenShift's KubeletConfigs.
func setKubeletSections(objects *input.Objects, pools []poolv1.MachineConfigPool, arbiter poolv1.MachineConfigPool, remark func(string, ...any)) (errs []error) {
	kubelets := input.Of[*input.KubeletConfig](objects)
	slices.SortStableFunc(kubelets, func(a, b *input.KubeletConfig) int { return strings.Compare(a.Name, b.Name) })
	ofPools := map[string]*input.KubeletConfig{} // by the names of pools
	for i := range pools {
		of := slices.DeleteFunc(slices.Clone(kubelets), func(k *input.KubeletConfig) bool {
			return !matchesSelector(k.Spec.MachineConfigPoolSelector, pools[i].Labels)
		})
		last := newest(of, func(k *input.KubeletConfig) metav1.ObjectMeta { return k.ObjectMeta })
		if len(last) == 1 {
			ofPools[pools[i].Name] = last[0]
		} else {
			for j, config := range last {
				other := otherOf(last, j).Name
				errs = append(errs, fmt.Errorf("KubeletConfig %q: spec.machineConfigPoolSelector: it selects the pool %s, as KubeletConfig %q does (%s). OpenShift applies the newest one, "+
					"and the files don't tell which one that is: remove one of them, or merge them", config.Name, pools[i].Name, other, objects.PlaceOf(input.OpenShiftKubeletKind.Kind, other)))
			}
		}
		for _, config := range of {
			newer := slices.IndexFunc(last, func(k *input.KubeletConfig) bool { return isLater(k.ObjectMeta, config.ObjectMeta) })
			if newer >= 0 {
				remark("warning: KubeletConfig %q is left out for the pool %s: %q is newer and replaces it, as in OpenShift", config.Name, pools[i].Name, last[newer].Name)
			}
		}
	}
	sections := map[string]map[string]any{} // by the names of KubeletConfigs
	for _, config := range kubelets {
		warnUnselected(config, config.Spec.MachineConfigPoolSelector, pools, arbiter, remark)
		if !slices.Contains(slices.Collect(maps.Values(ofPools)), config) {
			continue
		}
		section, err := convertSection(objects, config, remark)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		sections[config.Name] = section
	}
	errs = append(errs, checkSections(objects, pools, ofPools, sections, remark)...)
	for i := range pools {
		config := ofPools[pools[i].Name]
		if config == nil || sections[config.Name] == nil {
			continue
		}
		pools[i].Spec.Kubelet.AutoSizingReserved = config.Spec.AutoSizingReserved
		if section := sections[config.Name]; len(section) > 2 { // more than apiVersion and kind
			raw, err := json.Marshal(section)
			utilruntime.Must(err)
			pools[i].Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: raw}
		}
	}
	warnInherited(pools, ofPools, remark)
	return errs
}

// warnUnselected names an object of OpenShift's that selects the pool arbiter, or no pool at all. It reports whether
// the object selects one of the other pools.
func warnUnselected(object client.Object, selector *metav1.LabelSelector, pools []poolv1.MachineConfigPool, arbiter poolv1.MachineConfigPool,
	remark func(string, ...any),
) (isSelecting bool) {
	selects := func(p poolv1.MachineConfigPool) bool { return matchesSelector(selector, p.Labels) }
	kind := object.GetObjectKind().GroupVersionKind().Kind
	isSelecting = slices.ContainsFunc(pools, selects)
	if selects(arbiter) {
		remark("warning: %s %q is left out for the pool %s", kind, object.GetName(), arbiter.Name)
	} else if !isSelecting {
		remark("warning: %s %q is left out: its machineConfigPoolSelector selects no pool of OpenShift in the files: name the file with the pool too, or give the pool the label", kind, object.GetName())
	}
	return isSelecting
}

// convertSection returns the part of a KubeletConfig that a pool of Poolboot's can have, with apiVersion and kind; the
// rest is named. Values are not checked.
func convertSection(objects *input.Objects, k *input.KubeletConfig, remark func(string, ...any)) (map[string]any, error) {
	leaveOut := func(path, why string) {
		remark("warning: KubeletConfig %q: %s is left out: %s", k.Name, path, why)
	}
	section := maps.Clone(k.Spec.KubeletConfig)
	if section == nil {
		section = map[string]any{}
	}
	maps.DeleteFunc(section, func(_ string, value any) bool { return value == nil })
	if dropped := kubelet.DropZeroValues(section); len(dropped) > 0 {
		remark("note: KubeletConfig %q: zero values in spec.kubeletConfig are left out, as OpenShift does: %s", k.Name, strings.Join(dropped, ", "))
	}
	for _, name := range refusedFields {
		if value, has := section[name]; has && !input.IsEmpty(value) {
			leaveOut("spec.kubeletConfig."+name, "OpenShift refuses it: if the cluster needs it, set it in spec.kubelet.configuration")
		}
		delete(section, name)
	}
	var wrong field.ErrorList
	if profile := k.Spec.TLSSecurityProfile; profile != nil {
		wrong = setTLSProfile(section, profile, leaveOut)
	}
	if level := k.Spec.LogLevel; level != nil {
		if *level < 0 {
			wrong = append(wrong, field.Invalid(field.NewPath("spec", "logLevel"), *level, "must be 0 or more"))
		} else if _, has := section["logging"]; has {
			leaveOut("spec.logLevel", "spec.kubeletConfig.logging sets the log level")
		} else {
			section["logging"] = map[string]any{"verbosity": *level}
		}
	}
	for name, value := range map[string]any{"apiVersion": kubelet.APIVersion, "kind": kubelet.Kind} {
		if _, has := section[name]; !has {
			section[name] = value
		}
	}
	raw, err := json.Marshal(section)
	if err != nil {
		return nil, err
	}
	at := field.NewPath("spec", "kubeletConfig")
	_, errs := kubelet.Parse(raw, at)
	for _, err := range errs {
		if isWrong := err.BadValue != (field.OmitValueType{}) || err.Type == field.ErrorTypeTypeInvalid; isWrong && err.Type != field.ErrorTypeForbidden {
			wrong = append(wrong, err)
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(err.Field, at.String()+"."), ".")
		name, _, _ = strings.Cut(name, "[")
		if _, has := section[name]; has {
			why := err.Detail
			if whole := at.Child(name).String(); err.Field != whole {
				why = err.Field + ": " + why
			}
			leaveOut("spec.kubeletConfig."+name, why)
			delete(section, name)
		}
	}
	if reserved := k.Spec.AutoSizingReserved; reserved != nil && *reserved && !input.IsEmpty(section["systemReserved"]) {
		wrong = append(wrong, field.Forbidden(at.Child("systemReserved"), "autoSizingReserved computes it on each host, and OpenShift refuses both: remove one of them"))
	}
	if len(wrong) > 0 {
		raw, err := json.Marshal(section)
		utilruntime.Must(err)             // as above
		rest, _ := kubelet.Parse(raw, at) // without the fields of a wrong type
		return nil, objects.Refuse(input.OpenShiftKubeletKind.Kind, k.Name, append(wrong, rest.Check(at)...))
	}
	return section, nil
}

// checkSections refuses KubeletConfigs with values with which the kubelets of a pool would not start: a custom pool has
// them together with worker's, which is first. It removes their sections.
func checkSections(objects *input.Objects, pools []poolv1.MachineConfigPool, of map[string]*input.KubeletConfig, sections map[string]map[string]any,
	remark func(string, ...any),
) (errs []error) {
	at := field.NewPath("spec", "kubeletConfig")
	var ofWorker kubelet.Section
	var workerComputes *bool // its autoSizingReserved
	for i := range pools {
		config := of[pools[i].Name]
		if config == nil || sections[config.Name] == nil {
			continue
		}
		raw, err := json.Marshal(sections[config.Name])
		utilruntime.Must(err)
		own, _ := kubelet.Parse(raw, at) // convertSection returned its errors
		var worker kubelet.Section
		var computes *bool
		if pool.IsCustom(pools[i].Spec.PoolRole) {
			worker, computes = ofWorker, workerComputes
		}
		merged, err := own.MergeOver(worker)
		utilruntime.Must(err) // both are JSON
		check := func(section kubelet.Section, computes bool) field.ErrorList {
			return append(section.Check(at), section.CheckReservations(at, computes)...)
		}
		isComputed := ptr.Deref(cmp.Or(config.Spec.AutoSizingReserved, computes), false)
		wrong := append(own.CheckOver(worker, at), check(merged, isComputed)...)
		if len(wrong) == 0 && !isComputed {
			warnUnreserved(config.Name, pools[i].Name, merged, remark)
		}
		if len(wrong) > 0 && !worker.IsEmpty() && len(check(own, ptr.Deref(config.Spec.AutoSizingReserved, false))) == 0 {
			for _, err := range wrong {
				err.Detail += fmt.Sprintf(" (the pool %s inherits fields of %q from worker)", pools[i].Name, of[poolv1.RoleWorker].Name)
			}
		}
		if len(wrong) > 0 {
			errs = append(errs, objects.Refuse(input.OpenShiftKubeletKind.Kind, config.Name, wrong))
			delete(sections, config.Name)
		} else if pools[i].Name == poolv1.RoleWorker {
			ofWorker, workerComputes = own, config.Spec.AutoSizingReserved
		}
	}
	return errs
}

// warnInherited names the fields that custom pools with their own KubeletConfig inherit from worker in Poolboot but not
// in OpenShift, where it replaces worker's.
func warnInherited(pools []poolv1.MachineConfigPool, of map[string]*input.KubeletConfig, remark func(string, ...any)) {
	var worker poolv1.MachineConfigPool
	for _, p := range pools {
		if p.Name == poolv1.RoleWorker {
			worker = p
		}
		if !pool.IsCustom(p.Spec.PoolRole) || of[p.Name] == nil {
			continue // in OpenShift, a custom pool without its own has worker's too
		}
		var remedy []string
		only := findMissing(kubeletFields(worker), kubeletFields(p), "")
		if len(only) > 0 {
			remedy = append(remedy, "Set these fields in its spec.kubelet.configuration")
		}
		if ptr.Deref(worker.Spec.Kubelet.AutoSizingReserved, false) && p.Spec.Kubelet.AutoSizingReserved == nil {
			only = append(only, "autoSizingReserved")
			remedy = append(remedy, "Set its spec.kubelet.autoSizingReserved to false")
		}
		if len(only) > 0 {
			remark("warning: MachineConfigPool %q: it inherits %s from worker: in OpenShift its own KubeletConfig replaces worker's. %s",
				p.Name, strings.Join(only, ", "), strings.Join(remedy, ". "))
		}
	}
}

// warnUnreserved names a KubeletConfig with which the kubelets of a pool start in OpenShift only because it reserves
// 1Gi of memory for the system without any KubeletConfig. Nothing is reserved in the image of most hosts, but this is
// not known here.
func warnUnreserved(name, pool string, section kubelet.Section, remark func(string, ...any)) {
	var fields kubeletv1beta1.KubeletConfiguration
	text, err := section.DropIn("")
	utilruntime.Must(err)
	if err := yaml.Unmarshal(text, &fields); err != nil || fields.MemoryManagerPolicy != "Static" || len(fields.ReservedMemory) == 0 {
		return // Check has refused it, or the kubelet compares nothing
	}
	eviction := "100Mi" // without evictionHard
	if fields.EvictionHard != nil {
		eviction = fields.EvictionHard["memory.available"]
	}
	var total, reserved resource.Quantity
	for _, numaNode := range fields.ReservedMemory {
		total.Add(numaNode.Limits[corev1.ResourceMemory])
	}
	for _, text := range []string{eviction, fields.SystemReserved["memory"], fields.KubeReserved["memory"]} {
		quantity, err := resource.ParseQuantity(cmp.Or(text, "0"))
		if err != nil {
			return // a percentage of the memory of the host
		}
		reserved.Add(quantity)
	}
	if !total.Equal(reserved) {
		remark("warning: KubeletConfig %q: spec.kubeletConfig.reservedMemory: the kubelets of the pool %s do not start: its memory is %s, and kubeReserved, "+
			"systemReserved and evictionHard are %s together: in OpenShift, systemReserved is 1Gi by default: set memory in systemReserved, so that both are the same, "+
			"unless the image of the hosts sets it", name, pool, total.String(), reserved.String())
	}
}

// kubeletFields returns the fields of the kubelet section of a pool.
func kubeletFields(p poolv1.MachineConfigPool) (fields map[string]any) {
	if p.Spec.Kubelet.Configuration != nil {
		utilruntime.Must(kjson.UnmarshalCaseSensitivePreserveInts(p.Spec.Kubelet.Configuration.Raw, &fields))
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	return fields
}

// findMissing returns the paths of the fields that base has and over does not.
func findMissing(base, over map[string]any, prefix string) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(base)) {
		value, has := over[name]
		inBase, isObject := base[name].(map[string]any)
		inOver, isObjectToo := value.(map[string]any)
		switch {
		case !has:
			paths = append(paths, prefix+name)
		case isObject && isObjectToo:
			paths = append(paths, findMissing(inBase, inOver, prefix+name+".")...)
		}
	}
	return paths
}
