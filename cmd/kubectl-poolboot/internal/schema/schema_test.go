package schema

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	kjson "sigs.k8s.io/json"
)

// validate validates a MachineConfigPool in YAML.
func validate(t *testing.T, text string) (problems []string) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		t.Fatal(err)
	}
	for _, err := range Validate(poolv1.GroupVersion.WithKind("MachineConfigPool"), object) {
		problems = append(problems, err.Error())
	}
	return problems
}

func TestValidate(t *testing.T) {
	const head = "apiVersion: poolboot.io/v1alpha1\nkind: MachineConfigPool\n"
	for name, test := range map[string]struct {
		text string
		want []string // in any order; empty if it is valid
	}{
		"a valid pool, with a status that would not be stored": {text: "metadata: {name: a}\nspec: {clusterName: c, poolRole: infra}\nstatus: {hostCount: x}\n"},
		"metadata":            {"metadata: {name: a_b, labels: {a: b c}}\nspec: {clusterName: c, poolRole: infra}\n", []string{"metadata.name: Invalid value", "metadata.labels: Invalid value"}},
		"a missing field":     {"metadata: {name: a}\nspec: {clusterName: c}\n", []string{"spec.poolRole: Required value"}},
		"an unknown value":    {"metadata: {name: a}\nspec: {clusterName: c, poolRole: infra, node: {taints: [{key: a, effect: Never}]}}\n", []string{`spec.node.taints[0].effect: Unsupported value: "Never"`}},
		"duplicates in a map": {"metadata: {name: a}\nspec: {clusterName: c, poolRole: infra, node: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}}\n", []string{"spec.node.taints[1]: Duplicate value"}},
		"rules": {"metadata: {name: a}\nspec: {clusterName: c, poolRole: master, maxUnavailable: 0, updates: {disruptionPolicy: {files: [{path: /a/, actions: [{type: None}, {type: Reboot}]}]}}}\n",
			[]string{"spec.poolRole: Invalid value: \"master\": the role of the control plane's pool is control-plane", "spec.maxUnavailable: Invalid value: 0", "spec.updates.disruptionPolicy.files[0].path: Invalid value", "spec.updates.disruptionPolicy.files[0].actions: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			g, got := NewWithT(t), validate(t, head+test.text)
			g.Expect(got).To(HaveLen(len(test.want)), "%v", got)
			for _, want := range test.want {
				g.Expect(got).To(ContainElement(HavePrefix(want)))
			}
		})
	}
}
