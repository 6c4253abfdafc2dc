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

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// ownPrefix starts the keys of labels and annotations on Nodes that are Poolboot's own.
const ownPrefix = "pool.cluster.x-k8s.io/"

// Guard returns the ValidatingAdmissionPolicy and its binding, both of the given name, for the cluster that has these
// pools. They keep kubelets (group system:nodes) from changing what says which pool a Node is in, what Poolboot and
// Cluster API note on it, which host it is, and what can have it deleted or keep it from that. NodeRestriction keeps
// them from a part of that, such as role labels, and from taints.
//
// The same pools in any order make the same objects.
func Guard(name string, pools []poolv1.MachineConfigPool) []runtime.ApplyConfiguration {
	keep := []string{poolv1.NodePoolLabel, poolv1.NodeMetal3UUIDLabel}
	keepReported := []string{corev1.LabelOSStable} // Windows is in no pool
	for _, p := range pools {
		for _, key := range pool.SelectorKeys(p) {
			if slices.Contains(reported, key) {
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
			// A kubelet may change metadata by way of the status too.
			WithAPIGroups(corev1.GroupName).WithAPIVersions("v1").WithResources("nodes", "nodes/status"))).
		WithMatchConditions(apply.MatchCondition().WithName("kubelet").WithExpression(`"system:nodes" in request.userInfo.groups`)).
		WithVariables(
			variable("labelsBefore", `oldObject.metadata.?labels.orValue({})`),
			variable("labels", `object.metadata.?labels.orValue({})`),
			variable("annotationsBefore", `oldObject.metadata.?annotations.orValue({})`),
			variable("annotations", `object.metadata.?annotations.orValue({})`),
			variable("changed",
				list(keep)+`.filter(k, variables.labelsBefore[?k] != variables.labels[?k])`+
					` + `+list(keepReported)+`.filter(k, k in variables.labelsBefore && variables.labelsBefore[?k] != variables.labels[?k])`+
					` + `+changedKeys("labels", ownPrefix)+
					` + `+changedKeys("annotations", ownPrefix)+
					` + `+changedKeys("annotations", clusterv1.GroupVersion.Group+"/")+
					` + `+changedField("metadata", "ownerReferences", "[]")+
					` + `+changedField("metadata", "finalizers", "[]")+
					` + `+changedField("spec", "providerID", `""`)),
		).
		WithValidations(apply.Validation().
			WithExpression(`variables.changed.size() == 0`).
			WithMessageExpression(`"a kubelet cannot change " + variables.changed.join(", ") + " of its Node, because Poolboot or the pools' selectors rest on it: ` +
				`have an administrator of the cluster change it"`).
			WithReason(metav1.StatusReasonForbidden)))
	binding := apply.ValidatingAdmissionPolicyBinding(name).WithLabels(labels).WithSpec(apply.ValidatingAdmissionPolicyBindingSpec().
		WithPolicyName(name).WithValidationActions(admissionregistrationv1.Deny))
	return []runtime.ApplyConfiguration{policy, binding}
}

func variable(name, expression string) *apply.VariableApplyConfiguration {
	return apply.Variable().WithName(name).WithExpression(expression)
}

// changedKeys is the CEL expression of the keys with a prefix that an update adds to, changes in or removes from a map.
// Poolboot's own are what it rests on. By annotations of Cluster API a kubelet could have that remove labels and taints
// from its Node.
func changedKeys(values, prefix string) string {
	return fmt.Sprintf(`variables.%[1]sBefore.filter(k, k.startsWith(%[2]q) && variables.%[1]sBefore[?k] != variables.%[1]s[?k])`+
		` + variables.%[1]s.filter(k, k.startsWith(%[2]q) && !(k in variables.%[1]sBefore))`, values, prefix)
}

// changedField is the CEL expression of a field, if an update changes it. By an owner that does not exist a kubelet can
// have the garbage collector delete its Node (CVE-2025-5187), and by a finalizer keep it from being deleted. By the
// providerID of another Machine, which a Node that has none may still get, it can have Cluster API take its Node for
// that Machine's and put that one's labels on it.
func changedField(parent, field, none string) string {
	return fmt.Sprintf(`(oldObject.?%[1]s.?%[2]s.orValue(%[3]s) == object.?%[1]s.?%[2]s.orValue(%[3]s) ? [] : ["%[1]s.%[2]s"])`, parent, field, none)
}

// list is a list of strings as CEL writes it, sorted, each once.
func list(values []string) string {
	slices.Sort(values)
	text, err := json.Marshal(slices.Compact(values))
	if err != nil {
		panic(err) // strings always have a JSON form
	}
	return string(text)
}
