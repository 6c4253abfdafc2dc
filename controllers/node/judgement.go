package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/remedy"
)

// facts are the input of a judgement.
type facts struct {
	config *bootstrapv1.PoolbootConfig
	// machine is the owner of the config, or nil without one.
	machine *clusterv1.Machine
	// node is the Node with the recorded name, or nil if it does not exist.
	node *corev1.Node
	// host is the host of the Machine. It is nil if there is none, or if the Node has no label with a host's UID.
	host *host.Host
	// pools are the pools of the cluster.
	pools []poolv1.MachineConfigPool
}

// judgement is what to do with a Node and its record.
type judgement struct {
	// condition is NodeInPool, or nil if there is nothing to report yet.
	condition *metav1.Condition
	// node is the desired Node, or nil if it needs no change.
	node *corev1.Node
	// record is the pool and the Node to record, or nil if the record needs no change.
	record *nodeRecord
	// joined is true if the kubelet is Ready in its pool, which completes the boot.
	joined bool
}

// nodeRecord is what the status of a PoolbootConfig records about the Node.
type nodeRecord struct {
	pool string
	node bootstrapv1.NodeReference
	// configuration is the rendered config that the Node booted with if the record has lost it, and "" otherwise.
	configuration string
}

// judge compares a Node with its record. If the Node has the recorded UID, its labels decide, and the record follows
// them. A Node with another UID has registered again and lost its labels: it gets the labels of the recorded pool.
// Labels are only added.
func judge(f facts) judgement {
	recorded := f.config.Status.NodeRef
	switch {
	case f.node == nil && !recorded.IsDefined():
		return judgement{}
	case f.node == nil && !record.HasJoined(f.config) && record.IsWaitingForHost(f.config):
		return judgement{}
	case f.node == nil && !record.HasJoined(f.config):
		return notInPool(bootstrapv1.NodeMissingReason, "Node %s, which was pre-registered, does not exist: its host has not joined, and Poolboot creates the Node again while it may join", recorded.Name)
	case f.node == nil:
		return notInPool(bootstrapv1.NodeMissingReason, "Node %s does not exist: restart the kubelet on its host, which registers it again, or %s", recorded.Name, remedy.Remove(f.config))
	case !recorded.IsDefined() && !registeredWithoutRecord(f) && (!record.IsNodeOf(f.node, f.config) || isFromPreviousInstall(f.node, f.config) || isBeingPrepared(f)):
		return judgement{}
	}
	if other := otherOwner(f); other != "" {
		return notInPool(bootstrapv1.NodeNameTakenReason, "Node %s is not that of %s: %s", f.node.Name, remedy.OwnerOf(f.config), other)
	}
	isReregistered := recorded.IsDefined() && recorded.UID != string(f.node.UID)
	wanted := f.node.DeepCopy()
	if isReregistered {
		if problem := restore(wanted, f); problem != nil {
			return *problem
		}
	}
	followHost(wanted, f.host)
	role, problem := decideRole(wanted, f)
	if problem != nil {
		problem.node = changed(f.node, wanted)
		return *problem
	}
	if isReregistered && role != f.config.Status.PoolRole {
		j := notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s registered again with labels of pool %q, but pool %q is recorded: remove the labels of pool %[2]q from the Node",
			wanted.Name, role, f.config.Status.PoolRole)
		j.node = changed(f.node, wanted)
		return j
	}
	j := inPool(wanted, role, f)
	if j.node != nil {
		wanted = j.node
	}
	j.node = changed(f.node, wanted)
	return j
}

// registeredWithoutRecord reports whether a Node registered again while the record was lost, as during clusterctl move:
// its host has joined, the Node has no annotation of Poolboot, and its providerID is that of the Machine. The record of
// a pool that the Node had moved to is lost as well. So its labels decide, and a condition reports if they name no
// pool.
func registeredWithoutRecord(f facts) bool {
	return record.HasJoined(f.config) && f.node.Annotations[poolv1.NodeConfigAnnotation] == "" &&
		f.machine != nil && f.machine.Spec.ProviderID != "" && f.machine.Spec.ProviderID == f.node.Spec.ProviderID
}

// isBeingPrepared reports whether the boot controller has created a Node, and is about to record it. The host waits
// until then.
func isBeingPrepared(f facts) bool {
	return record.IsRequestPending(f.config) && !util.IsNodeReady(f.node)
}

// isFromPreviousInstall reports whether a Node of a BareMetalHost without a Machine is older than the PoolbootConfig,
// because the host was installed before with another PoolbootConfig. After clusterctl move the PoolbootConfig is
// younger than its Node, and its pointer ID is the UID that it had before the move.
func isFromPreviousInstall(node *corev1.Node, config *bootstrapv1.PoolbootConfig) bool {
	pointer := config.Annotations[bootstrapv1.PointerIDAnnotation]
	return record.HostKindOf(config) == record.BareMetalHost &&
		node.CreationTimestamp.Before(&config.CreationTimestamp) && (pointer == "" || pointer == string(config.UID))
}

// inPool judges a Node whose labels put it in a pool. The Node of the judgement is nil when an update would move it to
// another pool.
func inPool(node *corev1.Node, role string, f facts) judgement {
	wanted := node.DeepCopy()
	p, err := pool.OfRole(f.pools, role)
	if err != nil {
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s: %s", wanted.Name, err)
	}
	declared, err := pool.Labels(*p)
	if err != nil {
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s: %s", wanted.Name, err)
	}
	registration.AddLabels(wanted, declared)
	registration.DeclareTaints(wanted, nodev1.CoreTaints(p.Spec.NodeTaints))
	setPoolLabel(wanted, role, f.machine)
	setAnnotation(wanted, poolv1.NodeConfigAnnotation, record.Key(f.config).String())
	if p.Status.Configuration.IsDefined() {
		setAnnotation(wanted, poolv1.NodeDesiredConfigAnnotation, p.Status.Configuration.Name)
	}
	// The added labels can change the decision.
	if now, problem := decideRole(wanted, f); problem != nil {
		return *problem
	} else if now != role {
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "the labels that pool %q declares put Node %s in pool %q: correct its nodeLabels", role, wanted.Name, now)
	}

	j := judgement{node: wanted, record: &nodeRecord{pool: role, node: bootstrapv1.NodeReference{Name: wanted.Name, UID: string(wanted.UID)}}}
	if f.config.Status.Configuration.Name == "" {
		j.record.configuration = bootedWith(wanted)
	}
	switch {
	case util.IsNodeReady(wanted):
		wanted.Spec.Taints = slices.DeleteFunc(wanted.Spec.Taints, func(t corev1.Taint) bool { return t.Key == poolv1.NodeUnassignedTaint })
		j.joined = true
		j.condition = &metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue,
			Reason: bootstrapv1.NodeReadyInPoolReason, Message: fmt.Sprintf("Node %s is Ready in pool %q%s", wanted.Name, role, machineLabelWarning(role, f))}
	case record.HasJoined(f.config):
		j.condition = notInPool(bootstrapv1.NodeNotReadyReason, "Node %s is in pool %q and not Ready: see its conditions and the kubelet on its host", wanted.Name, role).condition
	default:
		waiting := registration.WaitingForKubelet(wanted.Name, role)
		j.condition = &waiting
	}
	return j
}

// restore adds to a Node that registered again what it had when it was pre-registered.
func restore(wanted *corev1.Node, f facts) *judgement {
	p, err := pool.OfRole(f.pools, f.config.Status.PoolRole)
	var declared map[string]string
	if err == nil {
		declared, err = pool.Labels(*p)
	}
	if err != nil {
		j := notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s registered again, and the labels of its pool cannot be restored: %s", wanted.Name, err)
		return &j
	}
	if !record.IsNodeOf(wanted, f.config) {
		dropFlags(wanted, declared, f)
	}
	registration.AddLabels(wanted, declared)
	setPoolLabel(wanted, p.Spec.PoolRole, f.machine)
	registration.AddLabels(wanted, f.config.Spec.NodeLabels)
	registration.AddLabels(wanted, f.config.Status.DerivedNodeLabels)
	if made := f.config.Status.HostRef; made.IsDefined() {
		registration.AddLabels(wanted, map[string]string{poolv1.NodeMetal3UUIDLabel: made.UID})
	}
	// Metal3's remediation can have restored the list of applied taints from the earlier Node. So the taints are added
	// even if they are in that list.
	registration.AddTaints(wanted, nodev1.CoreTaints(p.Spec.NodeTaints))
	registration.DeclareTaints(wanted, nodev1.CoreTaints(p.Spec.NodeTaints))
	registration.AddTaints(wanted, nodev1.CoreTaints(f.config.Spec.NodeTaints))
	setAnnotation(wanted, poolv1.NodeConfigAnnotation, record.Key(f.config).String())
	if booted := f.config.Status.Configuration.Name; booted != "" && wanted.Annotations[poolv1.NodeCurrentConfigAnnotation] == "" {
		setAnnotation(wanted, poolv1.NodeCurrentConfigAnnotation, booted)
	}
	return nil
}

// dropFlags removes labels that a kubelet sets when it registers, because they are in its flags since its host booted
// into an earlier pool, where the recorded pool has other values. No user has set them on this Node.
func dropFlags(wanted *corev1.Node, declared map[string]string, f facts) {
	booted := pool.OfRendered(f.pools, f.config.Status.Configuration.Name)
	if booted == nil || booted.Spec.PoolRole == f.config.Status.PoolRole {
		return
	}
	flags, err := pool.Labels(*booted)
	if err != nil {
		return // nothing boots into such a pool
	}
	for key, value := range flags {
		is, wants := declared[key]
		_, ofConfig := f.config.Spec.NodeLabels[key]
		ofMachine := f.machine != nil && metav1.HasLabel(f.machine.ObjectMeta, key) // Cluster API keeps it on the Node
		if wants && is == value || ofConfig || ofMachine || !registration.InKubeletFlags(key) {
			continue
		}
		if wanted.Labels[key] == value {
			delete(wanted.Labels, key)
		}
	}
}

// machineLabelWarning returns a warning when the labels of the Machine name another pool than that of the Node, because
// Cluster API copies them to the Node. It is empty otherwise.
func machineLabelWarning(role string, f facts) string {
	if f.machine == nil || f.config.Spec.PoolRole != "" {
		return ""
	}
	decision, err := pool.Decide(f.machine.Labels, f.pools)
	if err != nil || decision.Role == "" || decision.Role == role {
		return ""
	}
	return fmt.Sprintf("; the labels of Machine %s name pool %q and Cluster API puts those back: change them in the MachineDeployment",
		f.machine.Name, decision.Role)
}

// decideRole returns the role that a Node's labels decide, or the judgement on labels that decide none.
func decideRole(node *corev1.Node, f facts) (string, *judgement) {
	decision, err := pool.Decide(node.Labels, f.pools)
	var j judgement
	switch {
	case err != nil && f.machine != nil:
		j = notInPool(bootstrapv1.PoolConflictReason, "Node %s: %s; Cluster API puts back labels that the Machine has: change those in its MachineDeployment", node.Name, err)
	case err != nil:
		j = notInPool(bootstrapv1.PoolConflictReason, "Node %s: %s", node.Name, err)
	case decision.ControlPlane:
		j = notInPool(bootstrapv1.ControlPlaneNodeReason, "the labels of Node %s are those of a control plane, which is in no pool: remove the control-plane label", node.Name)
	case decision.Role == "":
		j = notInPool(bootstrapv1.NodeOutsidePoolReason, "the labels of Node %s are those of no pool: put the labels of a pool on it", node.Name)
	default:
		return decision.Role, nil
	}
	return "", &j
}

// otherOwner returns why a Node with the recorded name is not that of the Machine, and "" when it is. A Node that
// registered again has no annotation.
func otherOwner(f facts) string {
	if made := f.node.Annotations[poolv1.NodeConfigAnnotation]; made != "" && !record.IsNodeOf(f.node, f.config) {
		return "it was made for PoolbootConfig " + made
	}
	if f.machine == nil || f.machine.Spec.ProviderID == "" || f.node.Spec.ProviderID == "" || f.node.Spec.ProviderID == f.machine.Spec.ProviderID {
		return ""
	}
	return fmt.Sprintf("its spec.providerID is %q, the Machine's is %q", f.node.Spec.ProviderID, f.machine.Spec.ProviderID)
}

// notInPool returns a judgement that only reports why the Node is not in its pool.
func notInPool(reason, message string, args ...any) judgement {
	return judgement{condition: &metav1.Condition{
		Type:    bootstrapv1.NodeInPoolCondition,
		Status:  metav1.ConditionFalse,
		Reason:  reason,
		Message: fmt.Sprintf(message, args...),
	}}
}

// changed returns the desired Node, or nil if the Node needs no change.
func changed(is, wanted *corev1.Node) *corev1.Node {
	sameTaint := func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
	if maps.Equal(is.Labels, wanted.Labels) && maps.Equal(is.Annotations, wanted.Annotations) &&
		slices.EqualFunc(is.Spec.Taints, wanted.Spec.Taints, sameTaint) {
		return nil
	}
	return wanted
}

// bootedWith returns the rendered config that the annotation of a Node names, and "" without one. A kubelet can write
// the annotations of its own Node, so a value that is not a valid name is ignored.
func bootedWith(node *corev1.Node) string {
	name := node.Annotations[poolv1.NodeCurrentConfigAnnotation]
	if !strings.HasPrefix(name, poolv1.RenderedNamePrefix) || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

// setPoolLabel sets the label that names the pool, unless the Machine has this label: then Cluster API writes it, and
// two writers would overwrite each other.
func setPoolLabel(node *corev1.Node, role string, machine *clusterv1.Machine) {
	if machine != nil {
		if _, has := machine.Labels[poolv1.NodePoolLabel]; has {
			return
		}
	}
	setLabel(node, poolv1.NodePoolLabel, role)
}

func setLabel(node *corev1.Node, key, value string) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[key] = value
}

func setAnnotation(node *corev1.Node, key, value string) {
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[key] = value
}
