package registration

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apply "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// ownPrefix is the prefix of the keys of Poolboot's own labels and annotations on Nodes.
var ownPrefix = poolv1.GroupVersion.Group + "/"

// Guard returns a ValidatingAdmissionPolicy and its binding, both with the given name, for the workload cluster that
// has these pools. The policy prevents kubelets (the group system:nodes) from changing data of Nodes that Poolboot or
// Cluster API relies on: the labels in the selectors of the pools, Poolboot's own labels (also that of the pool), and
// its own annotations apart from the reports of agents, the annotations of Cluster API, the label metal3.io/uuid, the
// providerID, owner references and finalizers. NodeRestriction protects only a part of these, such as role labels, and
// it protects taints. A kubelet can add a label that it detects, such as kubernetes.io/arch, but it cannot change the
// value.
//
// The result does not depend on the order of the pools.
func Guard(name string, pools []poolv1.MachineConfigPool) []runtime.ApplyConfiguration {
	keep := []string{poolv1.NodeMetal3UUIDLabel}
	keepReported := []string{corev1.LabelOSStable} // Windows Nodes are in no pool
	for _, p := range pools {
		for _, key := range pool.SelectorKeys(p) {
			if slices.Contains(reportedKeys, key) {
				keepReported = append(keepReported, key)
			} else {
				keep = append(keep, key)
			}
		}
	}
	labels := map[string]string{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot}
	policy := apply.ValidatingAdmissionPolicy(name).WithLabels(labels).WithSpec(apply.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchConstraints(apply.MatchResources().WithResourceRules(apply.NamedRuleWithOperations().
			WithOperations(admissionregistrationv1.Update).
			// A kubelet can change metadata through the subresource status too.
			WithAPIGroups(corev1.GroupName).WithAPIVersions("v1").WithResources("nodes", "nodes/status"))).
		WithMatchConditions(apply.MatchCondition().WithName("kubelet").WithExpression(`"system:nodes" in request.userInfo.groups`)).
		WithVariables(
			newVariable("labelsBefore", `oldObject.metadata.?labels.orValue({})`),
			newVariable("labels", `object.metadata.?labels.orValue({})`),
			newVariable("annotationsBefore", `oldObject.metadata.?annotations.orValue({})`),
			newVariable("annotations", `object.metadata.?annotations.orValue({})`),
			newVariable("changed",
				celList(keep)+`.filter(k, variables.labelsBefore[?k] != variables.labels[?k])`+
					` + `+celList(keepReported)+`.filter(k, k in variables.labelsBefore && variables.labelsBefore[?k] != variables.labels[?k])`+
					` + `+changedKeys("labels", ownPrefix)+
					` + (`+changedKeys("annotations", ownPrefix)+`).filter(k, !(k in `+celList(slices.Clone(agentv1.Reports))+`))`+
					` + `+changedKeys("annotations", clusterv1.GroupVersion.Group+"/")+
					` + `+changedField("metadata", "ownerReferences", "[]")+
					` + `+changedField("metadata", "finalizers", "[]")+
					` + `+changedField("spec", "providerID", `""`)),
		).
		WithValidations(apply.Validation().
			WithExpression(`variables.changed.size() == 0`).
			WithMessageExpression(`"a kubelet cannot change " + variables.changed.join(", ") + " of its Node, because Poolboot or the selectors of pools depend on it: ` +
				`ask a cluster administrator to change it"`).
			WithReason(metav1.StatusReasonForbidden)))
	binding := apply.ValidatingAdmissionPolicyBinding(name).WithLabels(labels).WithSpec(apply.ValidatingAdmissionPolicyBindingSpec().
		WithPolicyName(name).WithValidationActions(admissionregistrationv1.Deny))
	return []runtime.ApplyConfiguration{policy, binding}
}

func newVariable(name, expression string) *apply.VariableApplyConfiguration {
	return apply.Variable().WithName(name).WithExpression(expression)
}

// changedKeys returns the CEL expression for the keys with a prefix that an update adds, changes or removes in a map.
// Poolboot relies on its own keys. With annotations of Cluster API, a kubelet could make Cluster API remove labels and
// taints from its Node.
func changedKeys(values, prefix string) string {
	return fmt.Sprintf(`variables.%[1]sBefore.filter(k, k.startsWith(%[2]q) && variables.%[1]sBefore[?k] != variables.%[1]s[?k])`+
		` + variables.%[1]s.filter(k, k.startsWith(%[2]q) && !(k in variables.%[1]sBefore))`, values, prefix)
}

// changedField returns the CEL expression for a field if an update changes it. none is the value of the field if it is
// not set. With an owner that does not exist, a kubelet could make the garbage collector delete its Node
// (CVE-2025-5187). With a finalizer, it could block the deletion of its Node. With the providerID of another Machine,
// which the API server accepts on a Node that has none, it could make Cluster API use its Node for that Machine and add
// the labels of that Machine to the Node.
func changedField(parent, field, none string) string {
	return fmt.Sprintf(`(oldObject.?%[1]s.?%[2]s.orValue(%[3]s) == object.?%[1]s.?%[2]s.orValue(%[3]s) ? [] : ["%[1]s.%[2]s"])`, parent, field, none)
}

// celList returns a CEL list of strings, sorted and without duplicates.
func celList(values []string) string {
	slices.Sort(values)
	text, err := json.Marshal(slices.Compact(values))
	if err != nil {
		panic(err) // a list of strings is always encoded
	}
	return string(text)
}
