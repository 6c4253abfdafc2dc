package movecheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// check returns the traps in the management cluster itself.
func (f *facts) check() *report {
	checked := &report{Namespace: f.namespace, Safe: true, Traps: []trap{}}
	for _, n := range f.nodes {
		if n.moves {
			checked.Moved++
		}
	}
	for _, find := range []func() []trap{
		f.clusterTraps, f.machineTraps, f.hostTraps, f.wipeTraps, f.blockMoveTraps, f.notMovedTraps, f.bootTraps, f.updateTraps,
	} {
		checked.add(find()...)
	}
	return checked
}

// clusterTraps returns the Clusters and ClusterClasses with which clusterctl refuses to start.
func (f *facts) clusterTraps() (traps []trap) {
	for i := range f.clusters.Items {
		c := &f.clusters.Items[i]
		at := "Cluster " + c.Namespace + "/" + c.Name
		hangs := func(message, remedy string) { traps = append(traps, trap{Hangs, at, message, remedy}) }
		switch {
		case ptr.Deref(c.Spec.Paused, false):
			hangs("spec.paused is true, maybe because a move was aborted: clusterctl refuses to start",
				fmt.Sprintf(`if the Cluster is not in another management cluster, kubectl -n %s patch cluster %s --type=merge -p '{"spec":{"paused":null}}'`, c.Namespace, c.Name))
		case annotations.HasPaused(c):
			hangs("it has the annotation "+clusterv1.PausedAnnotation+": clusterctl refuses to start",
				fmt.Sprintf("kubectl -n %s annotate cluster %s %s-", c.Namespace, c.Name, clusterv1.PausedAnnotation))
		}
		if !ptr.Deref(c.Status.Initialization.InfrastructureProvisioned, false) || !conditions.IsTrue(c, clusterv1.ClusterControlPlaneInitializedCondition) {
			hangs("its infrastructure or control plane is not initialized: clusterctl refuses to start", "wait until it is, or delete the Cluster")
		}
		if !c.DeletionTimestamp.IsZero() {
			hangs("it is being deleted", "wait until it is deleted")
		}
	}
	for i := range f.classes.Items {
		if c := &f.classes.Items[i]; annotations.HasPaused(c) {
			traps = append(traps, trap{Hangs, "ClusterClass " + c.Namespace + "/" + c.Name, "it has the annotation " + clusterv1.PausedAnnotation + ": clusterctl refuses to start",
				fmt.Sprintf("kubectl -n %s annotate clusterclass %s %s-", c.Namespace, c.Name, clusterv1.PausedAnnotation)})
		}
	}
	return traps
}

// machineTraps returns the Machines without a Node, and the Metal3Machines without a data template.
func (f *facts) machineTraps() (traps []trap) {
	for i := range f.machines.Items {
		if m := &f.machines.Items[i]; !m.Status.NodeRef.IsDefined() {
			traps = append(traps, trap{Hangs, "Machine " + m.Namespace + "/" + m.Name, "it has no Node yet: clusterctl refuses to start",
				"wait until its host has requested its configuration (see kubectl poolboot boots), or scale down its MachineDeployment"})
		}
	}
	for _, n := range f.nodes {
		_, has, _ := unstructured.NestedMap(n.Object, "spec", "dataTemplate")
		if n.GetKind() == "Metal3Machine" && n.moves && !has {
			traps = append(traps, trap{Note, n.String(), "it has no spec.dataTemplate: after the move Metal3 does not report its condition Metal3DataReady, and the condition Ready of its Machine stays Unknown. The server keeps running",
				"nothing, or roll out its MachineDeployment with a Metal3DataTemplate before the move"})
		}
	}
	return traps
}

// busyStates are the states in which Metal3 works on a host, with true when starting again harms the host.
var busyStates = map[bmov1alpha1.ProvisioningState]bool{
	bmov1alpha1.StateProvisioning: true, bmov1alpha1.StateDeprovisioning: true, bmov1alpha1.StatePoweringOffBeforeDelete: true, bmov1alpha1.StateDeleting: true,
	bmov1alpha1.StateRegistering: false, bmov1alpha1.StateInspecting: false, bmov1alpha1.StatePreparing: false,
}

// hostTraps returns the BareMetalHosts that Metal3 would provision again. The status annotation is what the
// infrastructure provider of Metal3 wrote before the last move; it writes none for a host that is still paused.
func (f *facts) hostTraps() (traps []trap) {
	for i := range f.hosts.Items {
		h := &f.hosts.Items[i]
		at, state := "BareMetalHost "+h.Namespace+"/"+h.Name, h.Status.Provisioning.State
		if harms, ok := busyStates[state]; ok {
			effect, message := Note, "Metal3 is "+string(state)+" it, and starts again after the move"
			if harms {
				effect, message = Lost, "it is "+string(state)+": after the move Metal3 does not know the progress, and starts again on a host that may be running"
			}
			traps = append(traps, trap{effect, at, message, "wait until it is provisioned or available"})
		}
		hasSavedStatus := metav1.HasAnnotation(h.ObjectMeta, bmov1alpha1.StatusAnnotation)
		if hasSavedStatus && h.Status.OperationalStatus == "" {
			traps = append(traps, trap{Lost, at, "its status was not restored since the last move, and another move would bring the status from before that one, or none: Metal3 would install the host again",
				"wait until the baremetal-operator has restored it: Ironic must run, and the annotation " + bmov1alpha1.PausedAnnotation + " must be removed"})
		}
		isSaved := hasSavedStatus && metav1.HasAnnotation(h.ObjectMeta, bmov1alpha1.PausedAnnotation)
		if isInstalled(h) && !f.isUsed(h) && !isSaved {
			traps = append(traps, trap{Lost, at, "it is " + string(state) + " and no Metal3Machine uses it, so its status is not saved in an annotation for the move: Metal3 would register and install it again",
				fmt.Sprintf(`kubectl -n %[1]s annotate baremetalhost %[2]s %[3]s= %[4]s="$(kubectl -n %[1]s get baremetalhost %[2]s -o jsonpath='{.status}')"; after the move remove the first annotation in the target`,
					h.Namespace, h.Name, bmov1alpha1.PausedAnnotation, bmov1alpha1.StatusAnnotation)})
		}
	}
	return traps
}

func isInstalled(h *bmov1alpha1.BareMetalHost) bool {
	return h.Status.Provisioning.State == bmov1alpha1.StateProvisioned || h.Status.Provisioning.State == bmov1alpha1.StateExternallyProvisioned
}

// consumer returns the Metal3Machine that uses a host; nil without one.
func (f *facts) consumer(h *bmov1alpha1.BareMetalHost) *node {
	for _, n := range f.nodes {
		if by := h.Spec.ConsumerRef; by != nil && n.GetKind() == by.Kind && n.GetName() == by.Name && (by.Namespace == "" || by.Namespace == n.GetNamespace()) {
			return n
		}
	}
	return nil
}

// isUsed reports whether a Metal3Machine can use a host. Objects of kinds that clusterctl does not read are not known.
func (f *facts) isUsed(h *bmov1alpha1.BareMetalHost) bool {
	by := h.Spec.ConsumerRef
	return f.consumer(h) != nil || by != nil && !slices.ContainsFunc(f.kinds, func(kind movableKind) bool { return kind.Kind == by.Kind })
}

// wipeTraps returns what could wipe running servers: clusterctl removes the pause annotation of a BareMetalHost before
// it deletes the BareMetalHost.
func (f *facts) wipeTraps() (traps []trap) {
	installed := len(slices.DeleteFunc(slices.Clone(f.hosts.Items), func(h bmov1alpha1.BareMetalHost) bool {
		return h.Status.Provisioning.State != bmov1alpha1.StateProvisioned || !f.isMoved(h.UID)
	}))
	if installed == 0 {
		return nil
	}
	for _, d := range f.ironic {
		if hasReplicas(d) {
			traps = append(traps, trap{Lost, "Deployment " + d.Namespace + "/" + d.Name, fmt.Sprintf("Ironic runs: clusterctl removes the pause annotation of each provisioned BareMetalHost (%d) before "+
				"it deletes it here, and the baremetal-operator can have Ironic wipe the server in between", installed),
				fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0, and leave the baremetal-operator running", d.Namespace, d.Name)})
		}
	}
	if len(f.ironic) == 0 {
		traps = append(traps, trap{Note, "Ironic", fmt.Sprintf("this cluster has no Deployment of Ironic: if Ironic runs elsewhere, the baremetal-operator can have it wipe a provisioned server (of %d) "+
			"when clusterctl deletes its BareMetalHost here", installed), "stop Ironic wherever it runs before the move"})
	}
	if f.operatorValidates && !slices.ContainsFunc(f.operator, hasReplicas) {
		traps = append(traps, trap{Hangs, "Deployment baremetal-operator", "it does not run and its webhook has failurePolicy Fail: the API server refuses clusterctl's changes of BareMetalHosts",
			"start the baremetal-operator, and stop Ironic instead"})
	}
	return traps
}

// blockMoveTraps returns the objects that block the move with an annotation that no controller removes. The Metal3
// provider removes it from the hosts that its Metal3Machines use.
func (f *facts) blockMoveTraps() (traps []trap) {
	for _, n := range f.nodes {
		if _, blocks := n.GetAnnotations()[clusterctlv1.BlockMoveAnnotation]; !blocks || !n.moves {
			continue
		}
		remedy := fmt.Sprintf("kubectl -n %s annotate %s %s %s-", n.GetNamespace(), strings.ToLower(n.GetKind()), n.GetName(), clusterctlv1.BlockMoveAnnotation)
		at := slices.IndexFunc(f.hosts.Items, func(h bmov1alpha1.BareMetalHost) bool { return h.UID == n.GetUID() })
		switch {
		case at < 0:
			traps = append(traps, trap{Note, n.String(), "it has the annotation " + clusterctlv1.BlockMoveAnnotation + ": clusterctl waits until its controller removes the annotation", "if no controller does, " + remedy})
		case f.consumer(&f.hosts.Items[at]) == nil:
			traps = append(traps, trap{Hangs, n.String(), "it has the annotation " + clusterctlv1.BlockMoveAnnotation + " from a deleted Metal3Machine, and no controller removes it: clusterctl waits until it times out " +
				"and leaves the Cluster paused", remedy})
		}
	}
	return traps
}

// notMovedTraps returns the objects that must be moved and would not be.
func (f *facts) notMovedTraps() (traps []trap) {
	left := map[schema.GroupKind][]client.Object{}
	for _, o := range f.needed {
		if kind, err := apiutil.GVKForObject(o, input.Scheme()); err == nil && !f.isMoved(o.GetUID()) {
			left[kind.GroupKind()] = append(left[kind.GroupKind()], o)
		}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(left), func(a, b schema.GroupKind) int { return cmp.Compare(a.Kind, b.Kind) }) {
		why := "no moved object owns it, and neither it nor its kind has the label " + clusterctlv1.ClusterctlMoveLabel + ": it would not be moved"
		var names []string
		for _, o := range left[kind] {
			names = append(names, o.GetName())
			if by := f.referrers[o.GetUID()]; by != "" {
				why += fmt.Sprintf("; %s refers to it", by)
			}
		}
		slices.Sort(names)
		remedy := cmp.Or(f.kindRemedy(kind), fmt.Sprintf("kubectl -n %s label %s %s %s=",
			f.namespace, strings.ToLower(kind.Kind), strings.Join(names, " "), clusterctlv1.ClusterctlMoveLabel))
		traps = append(traps, trap{Lost, fmt.Sprintf("%s %s/%s", kind.Kind, f.namespace, excerpt.List(5, names)), why, remedy})
	}
	return traps
}

// kindLabels are the labels with which clusterctl moves all objects of a kind of Metal3, which sets them itself.
var kindLabels = map[string][]string{
	"BareMetalHost": {clusterctlv1.ClusterctlMoveLabel, clusterctlv1.ClusterctlMoveHierarchyLabel},
	"HardwareData":  {clusterctlv1.ClusterctlMoveLabel},
}

// kindRemedy returns the command after which clusterctl reads the objects of a kind; "" when it does already.
func (f *facts) kindRemedy(kind schema.GroupKind) string {
	definition := f.definitionOf(kind)
	isKnown := slices.ContainsFunc(f.kinds, func(k movableKind) bool { return k.GroupKind() == kind })
	if definition == nil || isKnown && kindLabels[kind.Kind] == nil {
		return ""
	}
	remedy := "kubectl label crd " + definition.Name
	for _, label := range append([]string{clusterctlv1.ClusterctlLabel}, kindLabels[kind.Kind]...) {
		remedy += " " + label + "="
	}
	return remedy
}

// bootTraps returns the token rotations and boots in progress.
func (f *facts) bootTraps() (traps []trap) {
	for i := range f.configs.Items {
		c := &f.configs.Items[i]
		at := "PoolbootConfig " + c.Namespace + "/" + c.Name
		if record.IsRotationRequested(c) {
			traps = append(traps, trap{Note, at, "its token is being rotated: the other management cluster completes the rotation, and until then the config server answers an unknown token with 503",
				"nothing, or wait until the annotation " + bootstrapv1.RotateTokenAnnotation + " is removed"})
		}
		if stage := bootStage(c); stage != "" {
			traps = append(traps, trap{Note, at, fmt.Sprintf("its boot is %s: its host continues with the other management cluster, if the config server there has the same address and CA", stage),
				"nothing, or wait until it is Ready (see kubectl poolboot boots)"})
		}
	}
	return traps
}

// bootStage returns the stage of a host that is booting; "" for other hosts.
func bootStage(c *bootstrapv1.PoolbootConfig) record.Stage {
	switch stage, _ := record.StageOf(c); stage {
	case record.StageProvisioning, record.StagePreparing, record.StageServing, record.StageJoining:
		return stage
	}
	return ""
}

// updateTraps returns the updates of running hosts in progress.
func (f *facts) updateTraps() (traps []trap) {
	for i := range f.configs.Items {
		c := &f.configs.Items[i]
		if stage := c.Status.Update.Stage; stage != "" {
			traps = append(traps, trap{Note, "PoolbootConfig " + c.Namespace + "/" + c.Name, fmt.Sprintf("its host is in the stage %s of an update, and continues with the other management cluster: "+
				"until then, its Node is not drained, or stays cordoned, and its agent cannot download anything", stage),
				fmt.Sprintf("nothing, or pause the pool, and wait: kubectl poolboot rollout status POOL -n %s --watch", c.Namespace)})
		}
	}
	return traps
}

// agents returns how many hosts run an agent that was told what to run.
func (f *facts) agents() (n int) {
	for i := range f.configs.Items {
		if f.configs.Items[i].Status.Update.DesiredRevision != "" {
			n++
		}
	}
	return n
}
