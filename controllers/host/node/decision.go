package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// facts are the input of a decision.
type facts struct {
	config *bootstrapv1.PoolbootConfig
	// machine is the owner of the config, or nil without one.
	machine *clusterv1.Machine
	// node is the Node with the recorded name, or nil if it does not exist.
	node *corev1.Node
	// host is the host of the config. It is nil if there is none, or if nothing depends on it.
	host *host.Host
	// pools are the pools of the cluster.
	pools []poolv1.MachineConfigPool
	// recordedFor is the name of another PoolbootConfig with the Node on record, or "". It is only read if the Node
	// names none, and is to be adopted.
	recordedFor string
}

// decision is what to do with a Node and its record.
type decision struct {
	// condition is NodeInPool, or nil if there is nothing to report yet.
	condition *metav1.Condition
	// node is the desired Node, or nil if it needs no change.
	node *corev1.Node
	// record is the pool and the Node to record, or nil if the record needs no change.
	record *nodeRecord
	// fallback is the role of the pool to which the labels of the Node belong without its pool, or "" if there is none.
	// It is nil if the Node is not known.
	fallback *string
	// hasJoined is true if the kubelet is Ready in its pool, which completes the boot.
	hasJoined bool
	// host is the host to record, or nil if the record needs no change.
	host *bootstrapv1.HostReference
}

// nodeRecord is what the status of a PoolbootConfig records about the Node.
type nodeRecord struct {
	pool string
	node bootstrapv1.NodeReference
	// configuration is the rendered config that the Node booted with if the record has lost it, and "" otherwise.
	configuration string
	// derived are the derived labels of the Node if the record has lost them, and nil otherwise.
	derived map[string]string
}

// decide decides about a Node and its host.
func decide(f facts) *decision {
	d := decideNode(f)
	d.host = currentHost(f)
	return d
}

// decideNode compares a Node with its record. If the Node has the recorded UID, its labels decide, and the record
// follows them. A Node with another UID has registered again and lost its labels: it gets the labels of the recorded
// pool. Labels are only added.
func decideNode(f facts) *decision {
	recorded := f.config.Status.NodeRef
	switch {
	case f.node == nil && !recorded.IsDefined() && record.IsAdopted(f.config):
		return notInPool(bootstrapv1.WaitingForNodeReason, "Node %s does not exist in the workload cluster, and is adopted when it joins. If no Node with this name is to join, "+
			"delete PoolbootConfig %s, and create it with another spec.host.nodeName", f.config.Spec.Host.NodeName, f.config.Name)
	case f.node == nil && !recorded.IsDefined():
		return &decision{}
	case f.node == nil && !record.HasJoined(f.config) && record.IsWaitingForHost(f.config):
		return &decision{}
	case f.node == nil && !record.HasJoined(f.config):
		return notInPool(bootstrapv1.NodeMissingReason,
			"pre-registered Node %s does not exist: Poolboot creates the Node again as long as its host can join", recorded.Name)
	case f.node == nil:
		return notInPool(bootstrapv1.NodeMissingReason,
			"Node %s does not exist: restart the kubelet on its host, which registers it again, or %s", recorded.Name, outlook.HowToRemove(f.config))
	case !recorded.IsDefined() && !registeredWithoutRecord(f) && !record.IsAdopted(f.config) &&
		(!record.IsNodeOf(f.node, f.config) || isFromPreviousInstall(f.node, f.config) || isBeingPrepared(f)):
		return &decision{}
	}
	if why := otherOwner(f); why != "" {
		return notInPool(bootstrapv1.NodeNameTakenReason, "Node %s does not belong to %s: %s", f.node.Name, outlook.OwnerOf(f.config), why)
	}
	isReregistered := recorded.IsDefined() && recorded.UID != string(f.node.UID)
	node := f.node.DeepCopy()
	switch {
	case record.IsAsFound(f.config) && (f.config.Status.Update.Desired.Name != "" || !hasPoolConfig(node)):
		return asFound(node, f)
	case record.IsAdopted(f.config) && node.Labels[poolv1.NodePoolLabel] == "" && !isReregistered:
		if problem := adopt(node, f); problem != nil {
			return problem
		}
	}
	if isReregistered {
		if err := restore(node, f); err != nil {
			return notInPool(bootstrapv1.NodeOutsidePoolReason,
				"Node %s registered again, and the labels of its pool cannot be restored: %s", node.Name, err)
		}
	}
	followHost(node, f.host)
	d := decidePool(node, isReregistered, f)
	d.fallback = new(fallbackRole(cmp.Or(d.node, node), d.role(f), f.pools))
	if d.node == nil {
		d.node = node
	}
	if !needsPatch(f.node, d.node) {
		d.node = nil
	}
	return d
}

// role returns the role of the pool in which a host is recorded after a decision.
func (d *decision) role(f facts) string {
	if d.record != nil {
		return d.record.pool
	}
	return f.config.Status.PoolRole
}

// fallbackRole returns the role of the pool to which the labels of a Node belong if the pool of its role is deleted. It
// returns "" if they belong to none, or to several.
func fallbackRole(node *corev1.Node, role string, pools []poolv1.MachineConfigPool) string {
	byLabels, err := pool.Decide(node.Labels, slices.DeleteFunc(slices.Clone(pools), func(p poolv1.MachineConfigPool) bool {
		return p.Spec.PoolRole == role
	}))
	if err != nil {
		return ""
	}
	return byLabels.Role
}

// registeredWithoutRecord reports whether a Node registered again while the record was lost, as during clusterctl move:
// its host has joined, the Node has no annotation of Poolboot, and its providerID is that of the Machine. The record of
// a pool that the Node had moved to is lost as well. So its labels decide, and a condition reports if they name no
// pool.
func registeredWithoutRecord(f facts) bool {
	return record.HasJoined(f.config) && f.node.Annotations[poolv1.NodeConfigAnnotation] == "" &&
		f.machine != nil && f.machine.Spec.ProviderID != "" && f.machine.Spec.ProviderID == f.node.Spec.ProviderID
}

// isBeingPrepared reports whether the boot has created a Node, and is about to record it. The host waits
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

// decidePool decides by the labels of a Node, which must name the recorded pool if the Node registered again.
func decidePool(node *corev1.Node, isReregistered bool, f facts) *decision {
	role, problem := decideRole(node, f)
	switch {
	case problem != nil:
		return problem
	case isReregistered && role != f.config.Status.PoolRole:
		return notInPool(bootstrapv1.NodeOutsidePoolReason,
			"Node %s registered again with labels of pool %q, but pool %q is recorded: remove the labels of pool %[2]q from the Node",
			node.Name, role, f.config.Status.PoolRole)
	}
	return inPool(node, role, f)
}

// inPool decides about a Node whose labels put it in a pool. The Node of the decision is nil when an update would move
// it to another pool.
func inPool(current *corev1.Node, role string, f facts) *decision {
	node := current.DeepCopy()
	p, declared, err := poolWithLabels(f.pools, role)
	if err != nil {
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s: %s", node.Name, err)
	}
	registration.AddLabels(node, declared)
	registration.DeclareTaints(node, nodev1.CoreTaints(p.Spec.Node.Taints))
	metav1.SetMetaDataLabel(&node.ObjectMeta, poolv1.NodePoolLabel, role)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeConfigAnnotation, record.Key(f.config).String())
	// The added labels can change the decision.
	if newRole, problem := decideRole(node, f); problem != nil {
		return problem
	} else if newRole != role {
		return notInPool(bootstrapv1.NodeOutsidePoolReason,
			"the labels that pool %q declares put Node %s in pool %q: correct its spec.node.labels", role, node.Name, newRole)
	}

	d := &decision{node: node, record: &nodeRecord{pool: role, node: bootstrapv1.NodeReference{Name: node.Name, UID: string(node.UID)}}}
	if f.config.Status.Boot.ServedConfiguration.Name == "" {
		if d.record.configuration = bootedWith(node); record.IsAdopted(f.config) {
			d.record.configuration = cmp.Or(d.record.configuration, agentv1.AsFoundConfig)
		}
	}
	if !record.HasNode(f.config) {
		d.record.derived = derivedLabels(node, f)
	}
	switch {
	case util.IsNodeReady(node):
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == poolv1.NodeUnassignedTaint })
		d.hasJoined = true
		d.condition = &metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue,
			Reason: bootstrapv1.NodeReadyInPoolReason, Message: fmt.Sprintf("Node %s is Ready in pool %q%s", node.Name, role, machineLabelWarning(role, node.Labels, f))}
		if warning := registration.MachineTaintWarning(f.machine, p, f.config); warning != "" {
			d.condition.Message += "; " + warning
		}
	case record.HasJoined(f.config):
		d.condition = notInPool(bootstrapv1.NodeNotReadyReason,
			"Node %s is in pool %q and not Ready: check its conditions and the kubelet on its host", node.Name, role).condition
	default:
		d.condition = ptr.To(registration.WaitingForKubelet(node, role))
	}
	return d
}

// poolWithLabels returns the pool with a role, and the labels that it declares.
func poolWithLabels(pools []poolv1.MachineConfigPool, role string) (*poolv1.MachineConfigPool, map[string]string, error) {
	p, err := pool.OfRole(pools, role)
	if err != nil {
		return nil, nil, err
	}
	declared, err := pool.Labels(*p)
	return p, declared, err
}

// restore adds to a Node that registered again what it had when it was pre-registered.
func restore(node *corev1.Node, f facts) error {
	p, declared, err := poolWithLabels(f.pools, f.config.Status.PoolRole)
	if err != nil {
		return err
	}
	if !record.IsNodeOf(node, f.config) {
		removeOutdatedLabels(node, declared, f)
	}
	if record.IsAdopted(f.config) {
		addDeclared(node, declared)
	} else {
		registration.AddLabels(node, declared)
	}
	metav1.SetMetaDataLabel(&node.ObjectMeta, poolv1.NodePoolLabel, p.Spec.PoolRole)
	registration.AddLabels(node, f.config.Spec.Node.Labels)
	registration.AddLabels(node, f.config.Status.DerivedNodeLabels)
	if ref := f.config.Status.HostRef; ref.IsDefined() {
		registration.AddLabels(node, map[string]string{poolv1.NodeMetal3UUIDLabel: ref.UID})
	}
	// Metal3's remediation can have restored the list of applied taints from the earlier Node. So the taints are added
	// even if they are in that list.
	registration.AddTaints(node, nodev1.CoreTaints(p.Spec.Node.Taints))
	registration.DeclareTaints(node, nodev1.CoreTaints(p.Spec.Node.Taints))
	registration.AddTaints(node, nodev1.CoreTaints(f.config.Spec.Node.Taints))
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeConfigAnnotation, record.Key(f.config).String())
	if booted := f.config.Status.Boot.ServedConfiguration.Name; booted != "" && node.Annotations[poolv1.NodeCurrentConfigAnnotation] == "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeCurrentConfigAnnotation, booted)
	}
	return nil
}

// removeOutdatedLabels removes labels that a kubelet sets when it registers, because they are in its flags since its
// host booted into an earlier pool, where the recorded pool has other values. No user has set them on this Node.
func removeOutdatedLabels(node *corev1.Node, declared map[string]string, f facts) {
	booted := pool.OfRendered(f.pools, f.config.Status.Boot.ServedConfiguration.Name)
	if booted == nil || booted.Spec.PoolRole == f.config.Status.PoolRole {
		return
	}
	flags, err := pool.Labels(*booted)
	if err != nil {
		return // nothing boots into such a pool
	}
	for key, value := range flags {
		desired, isDeclared := declared[key]
		_, ofConfig := f.config.Spec.Node.Labels[key]
		ofMachine := f.machine != nil && metav1.HasLabel(f.machine.ObjectMeta, key) // Cluster API keeps it on the Node
		if isDeclared && desired == value || ofConfig || ofMachine || !registration.InKubeletFlags(key) {
			continue
		}
		if node.Labels[key] == value {
			delete(node.Labels, key)
		}
	}
}

// machineLabelWarning returns a warning when the Node leaves its pool once Cluster API copies the labels of the Machine
// to it. It is empty otherwise.
func machineLabelWarning(role string, nodeLabels map[string]string, f facts) string {
	named, err := roleOfMachine(f)
	if err == nil && (named == "" || named == role || staysInPool(role, nodeLabels, f)) {
		return ""
	}
	selected := fmt.Sprintf("pool %q", named)
	if err != nil {
		selected = "several pools"
	}
	return fmt.Sprintf("; the labels of Machine %s select %s, and Cluster API copies them to the Node: change them in %s", f.machine.Name, selected, labelSource(f.machine))
}

// staysInPool reports whether labels select a pool also together with those that Cluster API copies from the Machine.
func staysInPool(role string, nodeLabels map[string]string, f facts) bool {
	byLabels, err := pool.Decide(labels.Merge(nodeLabels, f.machine.Labels), f.pools)
	return err == nil && byLabels.Role == role
}

// roleOfMachine returns the role that the labels of the Machine name, or "". The error is a *pool.ConflictError.
func roleOfMachine(f facts) (string, error) {
	if f.machine == nil || f.config.Spec.PoolRole != "" {
		return "", nil
	}
	byLabels, err := pool.Decide(f.machine.Labels, f.pools)
	if conflict, isConflict := errors.AsType[*pool.ConflictError](err); isConflict {
		return "", conflict
	}
	return byLabels.Role, nil
}

// labelSource returns where a user changes the labels of a Machine.
func labelSource(machine *clusterv1.Machine) string {
	if name := machine.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		return "spec.template.metadata.labels of MachineDeployment " + name
	}
	return "the Machine"
}

// decideRole returns the role that a Node's labels decide, or the decision about labels that decide none.
func decideRole(node *corev1.Node, f facts) (string, *decision) {
	byLabels, err := pool.Decide(node.Labels, f.pools)
	problem := checkControlPlane(node, f.config)
	switch {
	case err != nil:
		return "", notInPool(bootstrapv1.PoolConflictReason, "Node %s: %s%s", node.Name, err, machineLabelWarning("", node.Labels, f))
	case problem != nil:
		return "", problem
	case byLabels.Role == "":
		return "", notInPool(bootstrapv1.NodeOutsidePoolReason,
			"no pool selects the labels of Node %s: set the labels of a pool on the Node", node.Name)
	}
	return byLabels.Role, nil
}

// maxOwner is the maximum size in bytes of the name of a PoolbootConfig that a Node claims.
const maxOwner = 2*validation.DNS1123SubdomainMaxLength + 1

// otherOwner returns why a Node with the recorded name does not belong to the config, or "" if it does. A Node that
// registered again has no annotation.
func otherOwner(f facts) string {
	owner := cmp.Or(f.node.Annotations[poolv1.NodeConfigAnnotation], f.recordedFor)
	switch isOther := owner != "" && owner != record.Key(f.config).String(); {
	case isOther && record.IsAdopted(f.config):
		return fmt.Sprintf("it belongs to PoolbootConfig %s. Delete the one of both that is not needed. If the other one does not exist any more, remove the annotation %s from the Node",
			excerpt.Line(owner, maxOwner), poolv1.NodeConfigAnnotation)
	case isOther:
		return "it was pre-registered for PoolbootConfig " + excerpt.Line(owner, maxOwner)
	}
	id := f.node.Spec.ProviderID
	if f.machine == nil || f.machine.Spec.ProviderID == "" || id == "" || id == f.machine.Spec.ProviderID {
		return ""
	}
	return fmt.Sprintf("its spec.providerID is %q, and that of the Machine is %q", id, f.machine.Spec.ProviderID)
}

// notInPool returns a decision that only reports why the Node is not in its pool.
func notInPool(reason, message string, args ...any) *decision {
	return &decision{condition: &metav1.Condition{
		Type:    bootstrapv1.NodeInPoolCondition,
		Status:  metav1.ConditionFalse,
		Reason:  reason,
		Message: fmt.Sprintf(message, args...),
	}}
}

// needsPatch reports whether a Node differs from the desired Node.
func needsPatch(current, desired *corev1.Node) bool {
	sameTaint := func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }
	return !maps.Equal(current.Labels, desired.Labels) || !maps.Equal(current.Annotations, desired.Annotations) ||
		!slices.EqualFunc(current.Spec.Taints, desired.Spec.Taints, sameTaint)
}

// bootedWith returns the rendered config that the annotation of a Node names, and "" without one. A kubelet can write
// the annotations of its own Node, so a value that is not a valid name is ignored.
func bootedWith(node *corev1.Node) string {
	name := node.Annotations[poolv1.NodeCurrentConfigAnnotation]
	if !pool.IsRenderedName(name) || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}
