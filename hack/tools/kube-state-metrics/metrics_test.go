package kubestatemetrics

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-state-metrics/v2/pkg/customresourcestate"
	"k8s.io/kube-state-metrics/v2/pkg/metric"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var created = metav1.NewTime(time.Unix(1700000000, 0))

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "metal", Name: name, UID: "1", CreationTimestamp: created,
		Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "edge"}, Annotations: map[string]string{"cluster.x-k8s.io/paused": "yes"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "owner", UID: "2", Controller: new(true)}}}
}

func condition(reason string) []metav1.Condition {
	return []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: created}}
}

// objects have a value in each field that the configuration reads.
func objects() map[schema.GroupVersionKind]any {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: meta("a")}
	config.Status.Conditions = condition("NodeNotReady")
	config.Status.PoolRole = "infra"
	config.Status.HostRef = bootstrapv1.HostReference{Namespace: "bmh", Name: "rack1", UID: "3"}
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: "a-node", UID: "4"}
	config.Status.Update = bootstrapv1.UpdateStatus{Desired: bootstrapv1.ConfigurationReference{Name: "rendered-infra-1"},
		Stage: bootstrapv1.UpdateRebooting, AgentVersion: "v0.1.0"}

	pool := &poolv1.MachineConfigPool{ObjectMeta: meta("infra")}
	pool.Spec = poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: "infra", Paused: new(true)}
	pool.Status = poolv1.MachineConfigPoolStatus{Conditions: condition("HostsUpdating"), Configuration: poolv1.PoolConfiguration{Name: "rendered-infra-2"},
		HostCount: new(int32(9)), UpdatedHostCount: new(int32(5)), ReadyHostCount: new(int32(7)), UnavailableHostCount: new(int32(2)),
		DegradedHostCount: new(int32(1)), AgentlessHostCount: new(int32(3)), RebootRequiredHostCount: new(int32(4))}

	enrollment := &poolv1.Enrollment{ObjectMeta: meta("edge")}
	enrollment.Spec = poolv1.EnrollmentSpec{ClusterName: "edge", PoolRole: "worker", MaxUses: 10, ExpirationTime: created}
	enrollment.Status = poolv1.EnrollmentStatus{Conditions: condition("Expired"), UsedCount: new(int32(4))}

	return map[schema.GroupVersionKind]any{
		bootstrapv1.GroupVersion.WithKind("PoolbootConfig"): config,
		poolv1.GroupVersion.WithKind("MachineConfigPool"):   pool,
		poolv1.GroupVersion.WithKind("Enrollment"):          enrollment,
	}
}

func TestObjectsHaveTheMetrics(t *testing.T) {
	content, err := os.ReadFile("../../../config/kube-state-metrics/poolboot.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file customresourcestate.Metrics
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, resource := range file.Spec.Resources {
		gvk := schema.GroupVersionKind(resource.GroupVersionKind)
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(objects()[gvk])
		if err != nil {
			t.Fatalf("%s: %v", gvk, err)
		}
		for i, family := range resource.Metrics { // as kube-state-metrics does when it reads the file
			resource.Metrics[i].Each.Type = metric.Type(strings.ToLower(string(family.Each.Type)))
		}
		factory, err := customresourcestate.NewCustomResourceMetrics(resource)
		if err != nil {
			t.Fatalf("%s: %v", gvk, err)
		}
		for _, family := range factory.MetricFamilyGenerators() {
			for line := range strings.Lines(string(family.Generate(&unstructured.Unstructured{Object: fields}).ByteSlice())) {
				if !strings.Contains(line, `cluster_name="edge",`) || !strings.Contains(line, `namespace="metal",`) || !strings.Contains(line, `uid="1"`) {
					t.Errorf("a label is missing: %s", line)
				}
				if !strings.HasSuffix(line, " 0\n") { // a state that the object does not have
					got = append(got, strings.TrimSpace(common.ReplaceAllString(line, "")))
				}
			}
		}
	}
	if got := strings.Join(got, "\n"); got != strings.TrimSpace(samples) {
		t.Errorf("the metrics are\n%s\nwant%s", got, samples)
	}
}

// common matches the labels that all metrics have.
var common = regexp.MustCompile(`\b(cluster_name|customresource_\w+|name|namespace|uid)="[^"]*",?`)

// samples are the metrics of the objects without common labels.
const samples = `
capi_poolbootconfig_info{agent_version="v0.1.0",configuration="rendered-infra-1",host_name="rack1",host_namespace="bmh",node_name="a-node",pool_role="infra",} 1
capi_poolbootconfig_owner{owner_is_controller="true",owner_kind="Machine",owner_name="owner",owner_uid="2",} 1
capi_poolbootconfig_created{} 1.7e+09
capi_poolbootconfig_annotation_paused{paused_value="yes",} 1
capi_poolbootconfig_status_condition{reason="NodeNotReady",status="False",type="Ready",} 1
capi_poolbootconfig_status_condition_last_transition_time{status="False",type="Ready",} 1.7e+09
capi_poolbootconfig_status_update_stage{stage="Rebooting",} 1
poolboot_machineconfigpool_info{configuration="rendered-infra-2",pool_role="infra",} 1
poolboot_machineconfigpool_owner{owner_is_controller="true",owner_kind="Machine",owner_name="owner",owner_uid="2",} 1
poolboot_machineconfigpool_created{} 1.7e+09
poolboot_machineconfigpool_annotation_paused{paused_value="yes",} 1
poolboot_machineconfigpool_status_condition{reason="HostsUpdating",status="False",type="Ready",} 1
poolboot_machineconfigpool_status_condition_last_transition_time{status="False",type="Ready",} 1.7e+09
poolboot_machineconfigpool_spec_paused{} 1
poolboot_machineconfigpool_status_hosts{} 9
poolboot_machineconfigpool_status_hosts_updated{} 5
poolboot_machineconfigpool_status_hosts_ready{} 7
poolboot_machineconfigpool_status_hosts_unavailable{} 2
poolboot_machineconfigpool_status_hosts_degraded{} 1
poolboot_machineconfigpool_status_hosts_agentless{} 3
poolboot_machineconfigpool_status_hosts_reboot_required{} 4
poolboot_enrollment_info{pool_role="worker",} 1
poolboot_enrollment_owner{owner_is_controller="true",owner_kind="Machine",owner_name="owner",owner_uid="2",} 1
poolboot_enrollment_created{} 1.7e+09
poolboot_enrollment_annotation_paused{paused_value="yes",} 1
poolboot_enrollment_status_condition{reason="Expired",status="False",type="Ready",} 1
poolboot_enrollment_status_condition_last_transition_time{status="False",type="Ready",} 1.7e+09
poolboot_enrollment_spec_expiration_time{} 1.7e+09
poolboot_enrollment_spec_max_uses{} 10
poolboot_enrollment_status_used{} 4
`
