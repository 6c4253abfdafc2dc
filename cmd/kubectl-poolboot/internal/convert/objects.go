package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	objectschema "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/schema"
)

// fromOpenShift returns OpenShift's objects as Poolboot's objects of a Cluster, in an order in which they can be
// applied: MachineConfigs, the pools worker and master, custom pools. Poolboot's own objects are kept. The
// notes name everything that is left out. The errors name every object that Poolboot would refuse to store; these
// objects are not returned. Settings of the container runtime are for the one with a name.
func fromOpenShift(objects *input.Objects, cluster, namespace, containerRuntime string) (converted []runtime.Object, notes, errs []error) {
	found := &remarks{objects: objects}
	remark := found.add
	own := selectOwn(objects, cluster, namespace, remark)
	pools, arbiter, errs := selectPools(objects, own, remark)
	errs = append(errs, setKubeletSections(objects, pools, arbiter, remark)...)
	if err := setUpdatePolicies(objects, pools, remark); err != nil {
		errs = append(errs, err)
	}
	configs, copies := selectConfigs(objects, pools, arbiter, remark)
	errs = append(errs, copies...)
	wrongDropins := convertConfigs(configs, pools, namespace, containerRuntime, remark)
	forRuntime, more := convertRuntime(objects, pools, arbiter, containerRuntime, remark)
	errs = append(errs, more...)
	for _, config := range forRuntime {
		if slices.ContainsFunc(configs, func(own poolv1.MachineConfig) bool { return own.Name == config.Name }) {
			errs = append(errs, fmt.Errorf("MachineConfig %q: the settings of container runtimes or registries in the files become a MachineConfig of this name: rename this one", config.Name))
			continue
		}
		config.Namespace = namespace
		config.SetGroupVersionKind(input.ConfigKind)
		configs = append(configs, config)
	}
	kept := sets.New[string]() // by kind and name
	for _, object := range input.Of[client.Object](objects) {
		if kind := object.GetObjectKind().GroupVersionKind(); slices.Contains(input.SettingsKinds, kind) {
			kept.Insert(kind.Kind + " " + object.GetName())
		}
	}
	keep := func(object client.Object, wrong field.ErrorList) {
		kind, key := object.GetObjectKind().GroupVersionKind().Kind, keyOf(object, namespace)
		err := objects.Refuse(kind, object.GetName(), wrong)
		if kept.Has(key) {
			err = fmt.Errorf("%s %q is given twice: remove one", kind, object.GetName())
		}
		kept.Insert(key)
		if err != nil {
			errs = append(errs, err)
			return
		}
		converted = append(converted, object)
	}
	for i := range configs {
		keep(&configs[i], append(wrongDropins[configs[i].Name], checkConfig(&configs[i], pools, remark)...))
	}
	for i := range pools {
		pools[i].ObjectMeta = convertMeta(pools[i].ObjectMeta, namespace)
		pools[i].Spec.ClusterName = cluster
		pools[i].Status = poolv1.MachineConfigPoolStatus{}
		pools[i].SetGroupVersionKind(input.PoolKind)
	}
	for _, config := range own.configs {
		keep(own.written(config), config.Validate())
	}
	for i := range pools {
		if isRefused(objects, pools[i].Name) {
			continue
		}
		keep(&pools[i], checkPool(slices.Concat(pools, own.pools), i))
	}
	for i, other := range own.others {
		wrong := other.Validate()
		if i < len(own.pools) {
			wrong = append(input.ValidatePool(slices.Concat(own.pools, pools), i), wrong...)
		}
		keep(own.written(other), wrong)
	}
	for i := range errs {
		errs[i] = objects.Locate(errs[i])
	}
	found.warnNotRendered(converted)
	for _, dropped := range objects.Dropped {
		kind, name, _ := strings.Cut(dropped.Object, " ")
		severity := "warning"
		if dropped.Expected {
			severity = "note"
		}
		if kept.Has(dropped.Object) {
			remark("%s: %s %q: %s is left out: %s", severity, kind, name, dropped.Path, dropped.Why)
		}
	}
	return converted, input.InOrder(found.all...), errs
}

// convertConfigs converts the MachineConfigs of pools of OpenShift, for a namespace. It returns what is wrong with
// drop-ins of the kubelet's configuration in them, by their names.
func convertConfigs(configs []poolv1.MachineConfig, pools []poolv1.MachineConfigPool, namespace, containerRuntime string, remark func(string, ...any)) map[string]field.ErrorList {
	wrongDropins := map[string]field.ErrorList{}
	for i := range configs {
		moveKubeletDropins(&configs[i], remark)
		shareNetworkNamespaces(&configs[i], remark)
		wrongDropins[configs[i].Name] = cleanKubeletDropins(&configs[i], remark)
		warnWithoutEffect(&configs[i], pools, containerRuntime, remark)
	}
	setWrappers(configs, pools, remark)
	for i := range configs {
		configs[i].ObjectMeta = convertMeta(configs[i].ObjectMeta, namespace)
		configs[i].SetGroupVersionKind(input.ConfigKind)
	}
	return wrongDropins
}

// arbiterName is the name of OpenShift's pool of machines that run only etcd.
const arbiterName = "arbiter"

// selectPools returns OpenShift's pools, worker first, and separately the pool arbiter. A built-in pool that something
// needs is added unless there is one. The errors name pools that are given twice.
func selectPools(objects *input.Objects, own own, remark func(string, ...any)) (pools []poolv1.MachineConfigPool, arbiter poolv1.MachineConfigPool, copies []error) {
	arbiter = input.NewBuiltIn(arbiterName)
	var selected []*poolv1.MachineConfigPool
	for _, p := range input.Of[*poolv1.MachineConfigPool](objects) {
		switch {
		case !input.IsOpenShift(p.TypeMeta): // see selectOwn
		case p.Name == arbiterName:
			remark("warning: MachineConfigPool %q is left out: its machines run only etcd of OpenShift's control plane, and other clusters have no such machines", p.Name)
			arbiter = *p
		default:
			selected = append(selected, p)
		}
	}
	selected, copies = input.FirstCopies(objects, selected)
	for _, p := range selected {
		pools = append(pools, *p)
	}
	for _, name := range input.BuiltIn {
		builtIn := input.NewBuiltIn(name)
		hasRole := func(p poolv1.MachineConfigPool) bool { return p.Spec.PoolRole == builtIn.Spec.PoolRole }
		switch why := whyNeeded(builtIn, objects, pools); {
		case why == "" || own.has(builtIn.Spec.PoolRole) || slices.ContainsFunc(pools, hasRole):
		case isRefused(objects, name):
			remark("warning: MachineConfigPool %q is left out, because it is refused: KubeletConfigs and policies for it are left out with it", name)
			pools = append(pools, builtIn) // to judge what is for it
		default:
			remark("note: %s", input.DescribeBuiltIn(name, why))
			pools = append(pools, builtIn)
		}
	}
	rank := func(p poolv1.MachineConfigPool) int {
		if first := slices.Index([]string{poolv1.RoleWorker, poolv1.RoleControlPlane}, p.Spec.PoolRole); first >= 0 {
			return first
		}
		return 2
	}
	slices.SortFunc(pools, func(a, b poolv1.MachineConfigPool) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Name, b.Name))
	})
	return pools, arbiter, copies
}

// isRefused reports whether a pool is one of OpenShift's built-in ones that the files have and that can't be read. No
// other one replaces it: it would have other fields, and not be paused.
func isRefused(objects *input.Objects, name string) bool {
	return slices.Contains(input.BuiltIn, name) && objects.IsRefused(input.OpenShiftPoolKind, name)
}

// parentOf returns the one of several pools that a pool inherits from. It returns nil if there is none.
func parentOf(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) *poolv1.MachineConfigPool {
	parent, _ := pool.ParentOf(p, pools) // worker can be an object of Poolboot
	return parent
}

// selectConfigs returns OpenShift's MachineConfigs in the order of their names, without rendered ones and those that
// only the pool arbiter has. The errors name MachineConfigs that are given twice.
func selectConfigs(
	objects *input.Objects, pools []poolv1.MachineConfigPool, arbiter poolv1.MachineConfigPool, remark func(string, ...any),
) (configs []poolv1.MachineConfig, copies []error) {
	var selected []*poolv1.MachineConfig
	for _, config := range input.Of[*poolv1.MachineConfig](objects) {
		isIn := func(p poolv1.MachineConfigPool) bool {
			return matchesSelector(p.Spec.MachineConfigSelector, config.Labels)
		}
		switch {
		case !input.IsOpenShift(config.TypeMeta): // see selectOwn
		case whyGenerated(config) != "":
			remark("note: MachineConfig %q is left out: %s", config.Name, whyGenerated(config))
		case isIn(arbiter) && !slices.ContainsFunc(pools, isIn):
			remark("warning: MachineConfig %q is left out: only the pool %s selects it", config.Name, arbiter.Name)
		default:
			selected = append(selected, config)
			if generatedLike.MatchString(config.Name) {
				remark("note: MachineConfig %q is kept: its name is like those of generated MachineConfigs, but OpenShift generates none of this name", config.Name)
			}
		}
	}
	selected, copies = input.FirstCopies(objects, selected)
	mirrors := findReleaseMirrors(objects)
	for _, config := range selected {
		dropReleaseImages(config, mirrors, remark)
		configs = append(configs, *config)
	}
	slices.SortFunc(configs, func(a, b poolv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return configs, copies
}

// matchesSelector reports whether a selector of OpenShift selects an object. An empty or malformed one selects nothing.
func matchesSelector(selector *metav1.LabelSelector, of map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !parsed.Empty() && parsed.Matches(labels.Set(of))
}

// convertMeta returns the metadata of an object without the fields of the cluster that it was read from.
func convertMeta(original metav1.ObjectMeta, namespace string) metav1.ObjectMeta {
	annotations := maps.Clone(original.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return metav1.ObjectMeta{Name: original.Name, Namespace: namespace, Labels: original.Labels, Annotations: annotations}
}

// checkConfig returns what the API server and the webhook would refuse in a MachineConfig of Poolboot, with these
// pools, and names what the webhook would warn of.
func checkConfig(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool, remark func(string, ...any)) field.ErrorList {
	warnings, errs := input.ValidateConfig(config, pools...)
	for _, warning := range warnings {
		remark("warning: MachineConfig %q: %s", config.Name, warning)
	}
	return errs
}

// checkPool returns what the API server and the webhook would refuse in one of the pools. What is common in OpenShift
// is explained alone.
func checkPool(pools []poolv1.MachineConfigPool, i int) field.ErrorList {
	p := pools[i]
	if problems := utilvalidation.IsDNS1123Label(p.Spec.PoolRole); len(problems) > 0 {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), field.OmitValueType{}, "it becomes the role, and "+strings.Join(problems, "; "))}
	}
	if s := p.Spec.NodeSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "nodeSelector"), field.OmitValueType{}, fmt.Sprintf(
			"OpenShift selects no Node with an empty selector, and Poolboot refuses such a pool: set node-role.kubernetes.io/%s, or leave the pool out", p.Name))}
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pools[i])
	utilruntime.Must(err) // the object was read from JSON
	return append(input.ValidatePool(pools, i), objectschema.Validate(input.PoolKind, written)...)
}

// setUpdatePolicies gives the pools worker and master the node disruption policies of OpenShift and its overrides for
// disks, which count for all pools: in Poolboot, custom pools inherit from worker.
func setUpdatePolicies(objects *input.Objects, pools []poolv1.MachineConfigPool, remark func(string, ...any)) error {
	configurations := input.Of[*input.MachineConfiguration](objects)
	if len(configurations) == 0 {
		return nil
	}
	policy, remarks, wrong := input.DisruptionPolicy(configurations[0])
	for _, text := range remarks {
		remark("warning: %s", text)
	}
	disks, note := input.DiskPolicy(configurations[0])
	if note != "" {
		remark("warning: %s", note)
	}
	if len(wrong) > 0 || disks == "" && len(policy.Files)+len(policy.Units)+len(policy.SSHKeys.Actions) == 0 {
		return objects.Refuse(input.OpenShiftPolicyKind.Kind, configurations[0].Name, wrong)
	}
	if _, err := pool.OfRole(pools, poolv1.RoleWorker); errors.As(err, new(*pool.NotFoundError)) {
		remark("warning: MachineConfiguration %q: it is left out: the pool worker of the files is an object of Poolboot: set disruptionPolicy and diskPolicy in its spec.updates", configurations[0].Name)
	}
	for i := range pools {
		if !pool.IsCustom(pools[i].Spec.PoolRole) {
			pools[i].Spec.Updates.DisruptionPolicy, pools[i].Spec.Updates.DiskPolicy = policy, disks
		}
	}
	return nil
}

// remark is a note or a warning about an object.
type remark struct {
	severity string
	about    error
}

func (r *remark) Error() string { return r.severity + ": " + r.about.Error() }

// Unwrap returns the remark with its place, without its severity.
func (r *remark) Unwrap() error { return r.about }

// remarks are the notes and warnings of one conversion.
type remarks struct {
	objects *input.Objects
	all     []error
}

// add adds a remark that begins with its severity, and the kind and the name of an object.
func (r *remarks) add(text string, args ...any) {
	severity, about, _ := strings.Cut(fmt.Sprintf(text, args...), ": ")
	r.all = append(r.all, &remark{severity, r.objects.LocateText(about)})
}

// warnNotRendered names what is wrong with MachineConfigs together: each one alone can be stored, and the pools that
// select them can't be rendered.
func (r *remarks) warnNotRendered(converted []runtime.Object) {
	var pools []poolv1.MachineConfigPool
	var configs []poolv1.MachineConfig
	for _, object := range converted {
		switch object := object.(type) {
		case *poolv1.MachineConfigPool:
			pools = append(pools, *object)
		case *poolv1.MachineConfig:
			configs = append(configs, *object)
		}
	}
	known := sets.New[string]()
	for _, p := range pools {
		_, err := pool.Render(p.Spec.PoolRole, pools, configs)
		if missing := (*pool.NotFoundError)(nil); err == nil || errors.As(err, &missing) {
			continue // it can be rendered, or the pool worker is refused
		}
		for _, one := range input.InOrder(r.objects.Locate(err)) {
			if !known.Has(one.Error()) {
				r.all = append(r.all, &remark{"warning", fmt.Errorf("%w. Until then, the pool %s can't be rendered", one, p.Name)})
			}
			known.Insert(one.Error())
		}
	}
}
