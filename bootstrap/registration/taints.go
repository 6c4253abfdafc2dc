package registration

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// PoolbootSource is the source of what every Node that Poolboot registers has.
const PoolbootSource = "Poolboot"

// MachineTaintsSource is the field with the taints that Cluster API keeps on the Node of a Machine.
const MachineTaintsSource = "Machine spec.taints"

// sourcedTaints are taints and the field that declares them.
type sourcedTaints struct {
	source string
	taints []corev1.Taint
}

func declaredTaints(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig) []sourcedTaints {
	return []sourcedTaints{
		{fmt.Sprintf("MachineConfigPool %s spec.node.taints", klog.KObj(p)), nodev1.CoreTaints(p.Spec.Node.Taints)},
		{fmt.Sprintf("PoolbootConfig %s spec.node.taints", klog.KObj(config)), nodev1.CoreTaints(config.Spec.Node.Taints)},
	}
}

// nodeTaints merges the taints of all sources and Poolboot's own taints. A taint of the Machine replaces those of the
// pool and the PoolbootConfig, because Cluster API overwrites their value. It also returns the taints that only a new
// Node gets, and the sources of each taint.
func nodeTaints(in Sources) (taints, initial []corev1.Taint, sources map[string][]string, err error) {
	merged := sourcedValues{}
	if err := merged.addTaints(PoolbootSource, ownTaints(in.Config)); err != nil {
		return nil, nil, nil, err
	}
	for _, from := range declaredTaints(&in.Pool, in.Config) {
		kept := slices.DeleteFunc(from.taints, func(t corev1.Taint) bool { return replacement(in.Machine, t) != nil })
		if err := merged.addTaints(from.source, kept); err != nil {
			return nil, nil, nil, err
		}
	}
	if in.Machine != nil {
		for _, taint := range in.Machine.Spec.Taints {
			if taint.Key == poolv1.NodeUnassignedTaint {
				return nil, nil, nil, &InvalidError{Source: fmt.Sprintf("Machine %s spec.taints", klog.KObj(in.Machine)),
					Problem: fmt.Sprintf("Poolboot adds and removes the taint %s: leave it out", taint.Key)}
			}
			if err := merged.addTaints(MachineTaintsSource, []corev1.Taint{coreTaint(taint)}); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	taints, sources = merged.taints()
	isInitial := func(t corev1.Taint) bool {
		of := ofMachine(in.Machine, t)
		return of != nil && of.Propagation == clusterv1.MachineTaintPropagationOnInitialization && len(sources[t.ToString()]) == 1
	}
	for _, taint := range taints {
		if isInitial(taint) {
			initial = append(initial, taint)
		}
	}
	taints = slices.DeleteFunc(taints, isInitial)
	if in.CloudProviderSource != "" && !slices.ContainsFunc(taints, isCloudProviderTaint) {
		initial = append(initial, cloudProviderTaint)
		sources[cloudProviderTaint.ToString()] = []string{in.CloudProviderSource}
	}
	return taints, initial, sources, nil
}

// ofMachine returns the taint of a Machine with the key and the effect of a taint, or nil.
func ofMachine(machine *clusterv1.Machine, taint corev1.Taint) *clusterv1.MachineTaint {
	if machine == nil {
		return nil
	}
	at := slices.IndexFunc(machine.Spec.Taints, func(t clusterv1.MachineTaint) bool { return t.Key == taint.Key && t.Effect == taint.Effect })
	if at < 0 {
		return nil
	}
	return &machine.Spec.Taints[at]
}

// replacement returns the taint of a Machine that replaces a declared taint because its value differs, or nil.
func replacement(machine *clusterv1.Machine, declared corev1.Taint) *clusterv1.MachineTaint {
	if t := ofMachine(machine, declared); t != nil && t.Value != declared.Value {
		return t
	}
	return nil
}

func coreTaint(t clusterv1.MachineTaint) corev1.Taint {
	return corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
}

// MachineTaintWarning returns which taints of a pool and a PoolbootConfig a Machine replaces, and what to do. It is
// empty if there are none.
func MachineTaintWarning(machine *clusterv1.Machine, p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig) string {
	var replaced []string
	for _, from := range declaredTaints(p, config) {
		for _, taint := range from.taints {
			if by := replacement(machine, taint); by != nil {
				of := coreTaint(*by)
				replaced = append(replaced, fmt.Sprintf("%s of Machine %s spec.taints replaces %s of %s", of.ToString(), klog.KObj(machine), taint.ToString(), from.source))
			}
		}
	}
	if len(replaced) == 0 {
		return ""
	}
	field := "of the Machine"
	if name := machine.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		field = "in spec.template.spec.taints of MachineDeployment " + name
	}
	return "the taint " + strings.Join(replaced, ", and ") + ": set one value in both, or remove the taint " + field
}

// AppliedTaints returns the value of the annotation poolboot.io/applied-taints for the taints that a pool
// declares. It is empty if the pool declares none.
func AppliedTaints(declared []corev1.Taint) string {
	taints := make([]string, len(declared))
	for i := range declared {
		taints[i] = declared[i].ToString()
	}
	slices.Sort(taints)
	return strings.Join(taints, ",")
}

// AddTaints adds taints to a Node. It keeps a taint that has the same key and effect, whatever its value is.
func AddTaints(node *corev1.Node, taints []corev1.Taint) {
	for i := range taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taints[i]) }) {
			node.Spec.Taints = append(node.Spec.Taints, taints[i])
		}
	}
}

// DeclareTaints adds the taints that the pool of a Node declares, each taint once, and lists them in the annotation
// poolboot.io/applied-taints. A listed taint that the Node lacks was removed by a user, and is not added
// again. A taint that is no longer declared leaves the list. If it is declared again, also by another pool to which the
// Node moves, it is added again. A taint that Cluster API keeps on the Node for the Machine is not listed: when the
// Machine no longer has it, Cluster API removes it, and the pool's is added.
func DeclareTaints(node *corev1.Node, declared []corev1.Taint) {
	kept := strings.Split(node.Annotations[clusterv1.TaintsFromMachineAnnotation], ",")
	declared = slices.DeleteFunc(slices.Clone(declared), func(t corev1.Taint) bool { return slices.Contains(kept, taintID(t)) })
	applied := strings.Split(node.Annotations[poolv1.NodeAppliedTaintsAnnotation], ",")
	AddTaints(node, slices.DeleteFunc(slices.Clone(declared), func(t corev1.Taint) bool { return slices.Contains(applied, t.ToString()) }))
	list := AppliedTaints(declared)
	if list == "" {
		delete(node.Annotations, poolv1.NodeAppliedTaintsAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeAppliedTaintsAnnotation, list)
}

// cloudProviderTaint is the taint that a kubelet with --cloud-provider=external adds when it creates its Node, without
// a flag for it. The cloud controller manager removes it when it has initialized the Node. A kubelet does not add it to
// a Node that exists.
var cloudProviderTaint = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}

func isCloudProviderTaint(taint corev1.Taint) bool { return taint.MatchTaint(&cloudProviderTaint) }

// KubeletTaints returns the taints for the kubelet's flag --register-with-taints. The taint of cloud providers is not
// among them, also if it is declared: a kubelet with --cloud-provider=external adds it, and the API server refuses a
// Node that has a taint twice.
func (r Registration) KubeletTaints() []corev1.Taint {
	return slices.DeleteFunc(slices.Concat(r.Taints, r.InitialTaints), isCloudProviderTaint)
}
