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
	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// fromOpenShift returns OpenShift's objects as Poolboot's objects of a Cluster, in an order in which they can be
// applied: MachineConfigs, the pool worker, custom pools. The remarks name everything that is left out. The error names
// every object that Poolboot would refuse to store.
func fromOpenShift(objects *input.Objects, cluster, namespace string) (converted []any, remarks []string, err error) {
	remark := func(text string, args ...any) { remarks = append(remarks, fmt.Sprintf(text, args...)) }
	pools, controlPlane := theirPools(objects, remark)
	errs := setKubeletSections(objects.KubeletConfigs, pools, controlPlane, remark)
	configs := theirConfigs(objects, pools, controlPlane, remark)
	for i := range pools {
		pools[i].ObjectMeta = portable(pools[i].ObjectMeta, namespace)
		pools[i].SetGroupVersionKind(input.PoolKind)
		pools[i].Spec.ClusterName = cluster
	}
	kept := map[string]bool{}
	for _, config := range objects.KubeletConfigs {
		kept[input.OpenShiftKubeletKind.Kind+" "+config.Name] = true
	}
	for _, config := range configs {
		config.ObjectMeta = portable(config.ObjectMeta, namespace)
		config.SetGroupVersionKind(input.ConfigKind)
		converted = append(converted, config)
		kept[input.ConfigKind.Kind+" "+config.Name] = true
		errs = append(errs, checkConfig(config))
	}
	for _, p := range pools {
		converted = append(converted, p)
		kept[input.PoolKind.Kind+" "+p.Name] = true
		errs = append(errs, checkPool(p, pools))
	}
	for _, field := range objects.Dropped {
		if kept[field.Object] {
			remark("warning: %s: %s is left out: Poolboot does not have this field", field.Object, field.Path)
		}
	}
	errs = append(errs, checkNames("MachineConfig", configs, func(c poolv1.MachineConfig) string { return c.Name }),
		checkNames("MachineConfigPool", pools, func(p poolv1.MachineConfigPool) string { return p.Name }))
	return converted, remarks, errors.Join(errs...)
}

// theirPools returns OpenShift's pools, worker first, and separately the pools of the control plane.
func theirPools(objects *input.Objects, remark func(string, ...any)) (pools, controlPlane []poolv1.MachineConfigPool) {
	for _, p := range input.Of[*poolv1.MachineConfigPool](objects) {
		switch {
		case !input.IsOpenShift(p.TypeMeta):
			remark("note: MachineConfigPool %q is left out: it is a Poolboot object already", p.Name)
		case input.IsControlPlane(p.Name):
			remark("warning: MachineConfigPool %q is left out: control plane machines are in no pool of Poolboot", p.Name)
			controlPlane = append(controlPlane, *p)
		default:
			pools = append(pools, *p)
		}
	}
	isCustom := func(p poolv1.MachineConfigPool) int {
		if p.Name == poolv1.RoleWorker {
			return 0
		}
		return 1
	}
	slices.SortFunc(pools, func(a, b poolv1.MachineConfigPool) int {
		return cmp.Or(isCustom(a)-isCustom(b), strings.Compare(a.Name, b.Name))
	})
	return pools, controlPlane
}

// theirConfigs returns OpenShift's MachineConfigs in the order of their names, without rendered ones and those that
// only the control plane has.
func theirConfigs(objects *input.Objects, pools, controlPlane []poolv1.MachineConfigPool, remark func(string, ...any)) (configs []poolv1.MachineConfig) {
	for _, config := range input.Of[*poolv1.MachineConfig](objects) {
		isIn := func(p poolv1.MachineConfigPool) bool { return selects(p.Spec.MachineConfigSelector, config.Labels) }
		switch {
		case !input.IsOpenShift(config.TypeMeta):
			remark("note: MachineConfig %q is left out: it is a Poolboot object already", config.Name)
		case strings.HasPrefix(config.Name, poolv1.RenderedNamePrefix):
			remark("note: MachineConfig %q is left out: it is rendered, and Poolboot renders its own", config.Name)
		case slices.ContainsFunc(config.OwnerReferences, isKubeletConfig):
			remark("note: MachineConfig %q is left out: OpenShift generated it from a KubeletConfig, which is converted", config.Name)
		case slices.ContainsFunc(controlPlane, isIn) && !slices.ContainsFunc(pools, isIn):
			remark("warning: MachineConfig %q is left out: only the control plane's pool selects it", config.Name)
		default:
			configs = append(configs, *config)
		}
	}
	slices.SortFunc(configs, func(a, b poolv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	return configs
}

// isKubeletConfig reports whether an owner is a KubeletConfig of OpenShift.
func isKubeletConfig(owner metav1.OwnerReference) bool {
	return owner.Kind == input.OpenShiftKubeletKind.Kind && owner.APIVersion == input.OpenShift.String()
}

// selects reports whether a selector of OpenShift selects an object. An empty or malformed one selects nothing.
func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !parsed.Empty() && parsed.Matches(labels.Set(of))
}

// portable returns the metadata of an object that does not belong to one cluster.
func portable(theirs metav1.ObjectMeta, namespace string) metav1.ObjectMeta {
	annotations := maps.Clone(theirs.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return metav1.ObjectMeta{Name: theirs.Name, Namespace: namespace, Labels: theirs.Labels, Annotations: annotations}
}

// checkConfig refuses a MachineConfig as the webhook would.
func checkConfig(config poolv1.MachineConfig) error {
	if err := ignition.GuardArguments(config.Spec.KernelArguments); err != nil {
		return fmt.Errorf("MachineConfig %q: spec: %w", config.Name, err)
	}
	if config.Spec.Config == nil {
		return nil
	}
	parsed, err := ignition.Parse(config.Spec.Config.Raw)
	if err == nil {
		err = ignition.Guard(parsed)
	}
	if err != nil {
		return fmt.Errorf("MachineConfig %q: spec.config: %w", config.Name, err)
	}
	return nil
}

// checkPool refuses a pool as the webhook and the schema would.
func checkPool(p poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) error {
	if problems := validation.IsDNS1123Label(p.Spec.PoolRole); len(problems) > 0 {
		return fmt.Errorf("MachineConfigPool %q: metadata.name: it becomes the role, and %s", p.Name, strings.Join(problems, "; "))
	}
	if _, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector); err != nil {
		return fmt.Errorf("MachineConfigPool %q: spec.machineConfigSelector: %w", p.Name, err)
	}
	if len(p.Spec.NodeSelector.MatchLabels)+len(p.Spec.NodeSelector.MatchExpressions) == 0 {
		return fmt.Errorf("MachineConfigPool %q: spec.nodeSelector: OpenShift selects no Node with an empty selector, and Poolboot refuses such a pool: "+
			"set node-role.kubernetes.io/%[1]s, or leave the pool out", p.Name)
	}
	if err := checkKubelet(p, pools); err != nil {
		return err
	}
	nodeLabels, err := pool.Labels(p)
	if err != nil {
		return err
	}
	var conflict *pool.ConflictError
	switch decision, err := pool.Decide(nodeLabels, pools); {
	case errors.As(err, &conflict):
		return fmt.Errorf("MachineConfigPool %q: spec.nodeSelector: the pools %s select the same Nodes, and a Node can be in one custom pool only: "+
			"select labels that the others don't", p.Name, strings.Join(conflict.Roles, " and "))
	case err != nil:
		return err
	case decision.Role != p.Spec.PoolRole:
		return fmt.Errorf("MachineConfigPool %q: spec.nodeSelector: Nodes with these labels are in the pool %q: select another label", p.Name, decision.Role)
	}
	return nil
}

// checkNames refuses a name that two objects of a kind have.
func checkNames[T any](kind string, sorted []T, name func(T) string) error {
	for i := range len(sorted) - 1 {
		if name(sorted[i]) == name(sorted[i+1]) {
			return fmt.Errorf("%s %q is given twice: remove one", kind, name(sorted[i]))
		}
	}
	return nil
}
