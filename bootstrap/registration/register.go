package registration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// providerIDPattern excludes the characters that need quotes in a systemd EnvironmentFile.
var providerIDPattern = regexp.MustCompile(`^[A-Za-z0-9.-]+://[A-Za-z0-9._:/-]+$`)

// Register returns what a Node is registered with. It checks with pool.Decide that the labels put the Node in the
// decided pool. Errors are *LabelConflictError, *InvalidError, *OutsidePoolError, *identity.NameError, and
// *pool.NotRegistrableError for a pool whose selector does not determine labels.
func Register(in Sources) (Registration, error) {
	if err := validate(in); err != nil {
		return Registration{}, err
	}
	labels, labelSources, err := nodeLabels(in)
	if err != nil {
		return Registration{}, err
	}
	if err := checkPool(in, labels, labelSources); err != nil {
		return Registration{}, err
	}
	taints, initial, taintSources, err := nodeTaints(in)
	if err != nil {
		return Registration{}, err
	}
	annotations := map[string]string{
		poolv1.NodeConfigAnnotation:        klog.KObj(in.Config).String(),
		poolv1.NodeCurrentConfigAnnotation: in.RenderedConfig,
		agentv1.DesiredConfigAnnotation:    in.RenderedConfig,
	}
	if applied := AppliedTaints(nodev1.CoreTaints(in.Pool.Spec.Node.Taints)); applied != "" {
		annotations[poolv1.NodeAppliedTaintsAnnotation] = applied
	}
	return Registration{
		Name: in.NodeName, ProviderID: in.ProviderID, Labels: labels, Taints: taints, Annotations: annotations,
		InitialTaints: initial, LabelSources: labelSources, TaintSources: taintSources,
	}, nil
}

// validate checks the Node name and the provider ID. A Node name can be longer than a label value. But the kubelet sets
// the label kubernetes.io/hostname to the name, and cannot register if the name is too long for it.
func validate(in Sources) error {
	problems := append(validation.IsDNS1123Subdomain(in.NodeName), validation.IsValidLabelValue(in.NodeName)...)
	if len(problems) > 0 {
		return &InvalidError{Source: fmt.Sprintf("Node name %q", in.NodeName), Problem: strings.Join(problems, "; ")}
	}
	if err := in.Cluster.CheckNodeName(in.NodeName); err != nil {
		return err
	}
	if in.ProviderID != "" && !providerIDPattern.MatchString(in.ProviderID) {
		return &InvalidError{Source: fmt.Sprintf("providerID %q", in.ProviderID), Problem: "must match " + providerIDPattern.String()}
	}
	return nil
}

// nodeLabels merges the labels of all sources. It also returns the sources of each label.
func nodeLabels(in Sources) (map[string]string, map[string][]string, error) {
	selected, err := pool.Labels(in.Pool)
	if err != nil {
		return nil, nil, err
	}
	for key := range in.Pool.Spec.Node.Labels {
		delete(selected, key)
	}
	poolName := fmt.Sprintf("MachineConfigPool %s", klog.KObj(&in.Pool))
	merged := sourcedValues{}
	for _, from := range []struct {
		source string
		labels map[string]string
	}{
		{poolName + " spec.nodeSelector", selected},
		{poolName + " spec.node.labels", in.Pool.Spec.Node.Labels},
		{poolName + " spec.poolRole", map[string]string{poolv1.NodePoolLabel: in.Pool.Spec.PoolRole}},
		{"BareMetalHost metadata.uid", newUUIDLabel(in.HostUID)},
		{"Machine metadata.labels", machineLabels(in)},
		{fmt.Sprintf("PoolbootConfig %s spec.node.labels", klog.KObj(in.Config)), in.Config.Spec.Node.Labels},
	} {
		if err := merged.addLabels(from.source, from.labels); err != nil {
			return nil, nil, err
		}
	}
	for _, label := range slices.Concat(in.DerivedLabels, reportedLabels(in)) {
		if err := merged.addLabels(label.Source, map[string]string{label.Key: label.Value}); err != nil {
			return nil, nil, err
		}
	}
	labels, sources := merged.labels()
	return labels, sources, nil
}

func machineLabels(in Sources) map[string]string {
	if in.Machine == nil {
		return nil
	}
	return labels.GetManagedLabels(in.Machine.Labels, in.SyncedLabels...)
}

func newUUIDLabel(uid string) map[string]string {
	if uid == "" {
		return nil
	}
	return map[string]string{poolv1.NodeMetal3UUIDLabel: uid}
}

// ownTaints returns the taints that keep Pods off a Node until Poolboot and Cluster API have prepared the Node. Without
// a Machine, Cluster API does not know the Node and never removes its taint.
func ownTaints(config *bootstrapv1.PoolbootConfig) []corev1.Taint {
	unassigned := corev1.Taint{Key: poolv1.NodeUnassignedTaint, Effect: corev1.TaintEffectNoSchedule}
	if record.IsMachineless(config) {
		return []corev1.Taint{unassigned}
	}
	return []corev1.Taint{unassigned, clusterv1.NodeUninitializedTaint}
}

// checkPool checks that the labels put the Node in the decided pool. Labels of the Machine or the PoolbootConfig can
// also match the selector of another pool. The Nodes of a control plane have labels of their own, which decide.
func checkPool(in Sources, labels map[string]string, sources map[string][]string) error {
	if pool.IsOfControlPlane(in.Pool) {
		return nil
	}
	outside := func(why string) error {
		return &OutsidePoolError{Role: in.Pool.Spec.PoolRole, Why: why, Remedy: outlook.HowToRelabel(in.Config)}
	}
	decision, err := pool.Decide(labels, in.Pools)
	rejected := pool.FindRejection(in.Pool, labels)
	switch {
	case err != nil:
		return outside(err.Error())
	case rejected != nil: // labels from other sources do not meet a requirement of the pool
		return outside(fmt.Sprintf("%s of the pool requires %s, and %s=%s comes from %s", rejected.Path, rejected.Requirement,
			rejected.Key, labels[rejected.Key], strings.Join(sources[rejected.Key], " and ")))
	case decision.ControlPlane:
		return outside("they are those of a control plane node")
	case decision.Role == "":
		return outside("no pool selects them")
	case decision.Role != in.Pool.Spec.PoolRole:
		return outside(fmt.Sprintf("the pool %q selects them", decision.Role))
	}
	return nil
}

// maxSyncedInstructions is the maximum number of instructions of a compiled regular expression in CompileSyncedLabels.
// Each expression is matched against each label key of each Machine. A label key has at most 317 characters.
const maxSyncedInstructions = 1000

// CompileSyncedLabels compiles the values of the flag --additional-sync-machine-labels, as Cluster API does. It rejects
// an expression whose repetitions {n} would make a match slow.
func CompileSyncedLabels(expressions []string) ([]*regexp.Regexp, error) {
	compiled := make([]*regexp.Regexp, 0, len(expressions))
	for _, expression := range expressions {
		measure, err := nodelabels.MeasureRegexp(expression)
		if err != nil {
			return nil, fmt.Errorf("--additional-sync-machine-labels: %w", err)
		}
		if measure.Instructions > maxSyncedInstructions {
			return nil, fmt.Errorf("--additional-sync-machine-labels: %q has %d instructions when it is compiled, the limit is %d: use smaller repetitions {n}",
				expression, measure.Instructions, maxSyncedInstructions)
		}
		re, err := regexp.Compile(expression)
		if err != nil {
			return nil, fmt.Errorf("--additional-sync-machine-labels: %q: %w", expression, err)
		}
		compiled = append(compiled, re)
	}
	return compiled, nil
}
