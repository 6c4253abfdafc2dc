package pool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Reason is why a host boots into its pool. It is a reason of the condition PoolDecided.
type Reason string

// Reasons for the pool of a boot.
const (
	FromRecord Reason = bootstrapv1.PoolRecordedReason
	FromHost   Reason = bootstrapv1.PoolRetainedByHostReason
	FromSpec   Reason = bootstrapv1.PoolSpecifiedInConfigReason
	FromLabels Reason = bootstrapv1.PoolFromMachineLabelsReason
	Defaulted  Reason = bootstrapv1.PoolDefaultedToWorkerReason
)

// Boot is the input for the decision into which pool a host boots. The labels of the PoolbootConfig are not part of it:
// they can come from its template, and Cluster API syncs only the Machine's labels to the Node.
type Boot struct {
	// Config is the PoolbootConfig of the host.
	Config *bootstrapv1.PoolbootConfig
	// Machine owns the config; nil for a host without a Machine.
	Machine *clusterv1.Machine
	// DataSecret is the metadata of the inline data Secret. It is nil if there is none, or if status.poolRole is
	// recorded.
	DataSecret metav1.Object
	// Host is the metadata of the BareMetalHost that boots. It is nil while the host is not known.
	Host metav1.Object
	// Pools are all pools of the Cluster.
	Pools []poolv1.MachineConfigPool
}

// Choice is the pool that a host boots into.
type Choice struct {
	// Role is the pool's role. If ForBoot returns an error, it is the role to keep in status.poolRole: that of a custom
	// pool that does not exist now, so that the boot continues when the pool exists again. Otherwise it is empty.
	Role string
	// Reason is why the host boots into that pool.
	Reason Reason
	// Retained is the role of the pool that is retained on the host for Machines of this Cluster. It is empty if none
	// is, or if poolRetention is not Host.
	Retained string
	// WithoutRecord is the role that would be decided without a record. It equals Role unless Reason is FromRecord.
	WithoutRecord string
}

// ForBoot decides into which pool a host boots. No other code decides that.
//
// The recorded pool is final once an object was created from it that does not change: the Node or, with an inline
// source, the data Secret. Before that, the first of these applies: the pool that is retained on the host, if
// poolRetention is Host; spec.poolRole; the custom pool that Decide returns for the Machine's labels; worker. But a
// Machine does not boot as worker because its custom pool is missing: a role label that no pool selects is an
// *UnselectedError, and a recorded custom pool that does not exist is a *NotFoundError. spec.poolRole takes precedence
// over both errors.
//
// Unless the recorded pool is final, the pool must exist (*NotFoundError, *DuplicateError), and its labels must be
// derivable (*NotRegistrableError). Labels of several custom pools are a *ConflictError, labels of a control plane a
// *ControlPlaneError.
func ForBoot(b Boot) (Choice, error) {
	decided, err := b.decide()
	err = b.withRemedy(err)
	recorded := b.finalRole()
	switch {
	case recorded == "" && err != nil:
		return Choice{Role: b.missingRole(), Retained: decided.Retained}, err
	case recorded == "":
		return decided, nil
	case err == nil && decided.Role == recorded && record.HasNode(b.Config) && !b.isRetainedOnHost():
		return decided, nil
	}
	return Choice{Role: recorded, Reason: FromRecord, Retained: decided.Retained, WithoutRecord: decided.Role}, nil
}

// Pool returns the pool of a role for the host.
func (b Boot) Pool(role string) (*poolv1.MachineConfigPool, error) {
	p, err := OfRole(b.Pools, role)
	return p, b.withRemedy(err)
}

// withRemedy adds the remedy for this host to an error about a pool that does not exist.
func (b Boot) withRemedy(err error) error {
	if missing, ok := errors.AsType[*NotFoundError](err); ok {
		return &NotFoundError{Role: missing.Role, Remedy: missingPoolRemedy(b.Config, missing.Role)}
	}
	return err
}

// HowToRenew returns how to boot the host with the current configuration of its pool, and into which pool its next
// Machine boots if its Node was moved to another one.
func (b Boot) HowToRenew() string {
	renew := outlook.HowToRenew(b.Config)
	next, err := ForBoot(b)
	if err != nil || b.Machine == nil || b.isRetainedOnHost() || next.WithoutRecord == "" || next.WithoutRecord == b.Config.Status.PoolRole {
		return renew
	}
	return fmt.Sprintf("%s (the new Machine boots into pool %s unless you change spec.template of its MachineDeployment)", renew, next.WithoutRecord)
}

// missingPoolRemedy returns what to do about a host whose pool does not exist.
func missingPoolRemedy(config *bootstrapv1.PoolbootConfig, role string) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return fmt.Sprintf("create it, or name another role in the annotation %s of %s", poolv1.HostPoolAnnotation, outlook.OwnerOf(config))
	case record.EnrolledHost:
		return fmt.Sprintf("create it, or delete %s and its Node, and enroll the host with a token for another pool", outlook.OwnerOf(config))
	case record.AdoptedHost:
		return "create it, or correct spec.poolRole of the PoolbootConfig"
	}
	switch {
	case config.Spec.IsInline() && config.Status.DataSecretName != "":
		return fmt.Sprintf("create it, or %s. The data Secret was created for this pool and never changes; the replacement boots into the pool of its labels", outlook.HowToReplace(config))
	case config.Spec.PoolRole != "":
		return "create it, or correct spec.poolRole of the PoolbootConfig and of its template"
	case role == poolv1.RoleWorker:
		return "create it"
	}
	return "create it, or set spec.poolRole of the PoolbootConfig (worker, for example) to boot into another pool"
}

// decide decides without a record. If it returns an error, the Choice has only the retained role.
func (b Boot) decide() (Choice, error) {
	retained := ""
	if b.isRetainedOnHost() && b.Host != nil {
		retained = retainedRole(b.Host, b.Pools)
	}
	role, reason, err := b.decideRole(retained)
	if err != nil {
		return Choice{Retained: retained}, err
	}
	return Choice{Role: role, Reason: reason, Retained: retained, WithoutRecord: role}, nil
}

// decideRole decides without a record. retained is the role that is retained on the host, if any.
func (b Boot) decideRole(retained string) (string, Reason, error) {
	if retained != "" {
		err := b.checkRole(retained)
		if _, isMissing := errors.AsType[*NotFoundError](err); !isMissing {
			return retained, FromHost, err
		}
	}
	if role := b.Config.Spec.PoolRole; role != "" {
		return role, FromSpec, b.checkRole(role)
	}
	decision, err := Decide(b.machineLabels(), b.Pools)
	switch unselected := UnselectedLabels(b.machineLabels(), b.Pools); {
	case err != nil:
		return "", "", err
	case decision.ControlPlane:
		return "", "", &ControlPlaneError{Unsupported: decision.Unsupported}
	case IsCustom(decision.Role):
		return decision.Role, FromLabels, b.checkRole(decision.Role)
	case len(unselected) > 0:
		return "", "", &UnselectedError{Labels: unselected}
	case b.missingRole() != "":
		return "", "", &NotFoundError{Role: b.missingRole()}
	case decision.Role == poolv1.RoleWorker:
		return decision.Role, FromLabels, b.checkRole(decision.Role)
	}
	return poolv1.RoleWorker, Defaulted, b.checkRole(poolv1.RoleWorker)
}

// checkRole returns an error if no host can boot into the pool of a role.
func (b Boot) checkRole(role string) error {
	p, err := OfRole(b.Pools, role)
	if err == nil {
		_, err = Labels(*p)
	}
	return err
}

// finalRole returns the recorded role if it no longer follows labels and pools, otherwise "".
func (b Boot) finalRole() string {
	isInline := b.Config.Spec.IsInline()
	switch status := &b.Config.Status; {
	case isInline && b.DataSecret != nil:
		return cmp.Or(roleOfDataSecret(b.DataSecret, b.Pools), status.PoolRole)
	case record.HasNode(b.Config), isInline && status.DataSecretName != "":
		return status.PoolRole
	}
	return ""
}

// missingRole returns the recorded role if it is that of a custom pool that does not exist, otherwise "".
func (b Boot) missingRole() string {
	role := b.Config.Status.PoolRole
	if _, err := OfRole(b.Pools, role); IsCustom(role) && errors.As(err, new(*NotFoundError)) {
		return role
	}
	return ""
}

// UnselectedLabels returns the role labels of a Machine or Node that no pool selects, as key=value in order. The caller
// has checked that no custom pool selects the Machine or Node.
func UnselectedLabels(labels map[string]string, pools []poolv1.MachineConfigPool) (unselected []string) {
	selected := sets.New(poolv1.NodeRoleLabelPrefix + poolv1.RoleWorker)
	for _, role := range controlPlaneRoles {
		selected.Insert(poolv1.NodeRoleLabelPrefix + role)
	}
	for _, p := range pools {
		if !IsCustom(p.Spec.PoolRole) {
			selected.Insert(SelectorKeys(p)...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if strings.HasPrefix(key, poolv1.NodeRoleLabelPrefix) && !selected.Has(key) {
			unselected = append(unselected, key+"="+labels[key])
		}
	}
	return unselected
}

func (b Boot) isRetainedOnHost() bool { return IsRetainedOnHost(&b.Config.Spec.BootSpec) }

func (b Boot) machineLabels() map[string]string {
	if b.Machine == nil {
		return nil
	}
	return b.Machine.Labels
}

// roleOfDataSecret returns the role of the pool for which an inline data Secret was created, or "" if that is unknown.
// Without the annotation of the role, it uses the annotation with the name of the rendered config.
func roleOfDataSecret(dataSecret metav1.Object, pools []poolv1.MachineConfigPool) string {
	annotations := dataSecret.GetAnnotations()
	if role := annotations[bootstrapv1.DataSecretPoolAnnotation]; role != "" {
		return role
	}
	if p := OfRendered(pools, annotations[bootstrapv1.OverlayConfigurationAnnotation]); p != nil {
		return p.Spec.PoolRole
	}
	return ""
}

// Message returns the message of the condition PoolDecided.
func (a Choice) Message(b Boot) string {
	message := fmt.Sprintf("pool %q, because no label of the Machine names another pool", a.Role)
	switch a.Reason {
	case FromRecord:
		return a.recordedMessage(b)
	case FromHost:
		return fmt.Sprintf("pool %q, which is retained on BareMetalHost %s", a.Role, b.Host.GetName())
	case FromSpec:
		message = fmt.Sprintf("pool %q, by spec.poolRole", a.Role)
	case FromLabels:
		message = fmt.Sprintf("pool %q, by the Machine's labels", a.Role)
	}
	if b.isRetainedOnHost() && b.Host == nil {
		message += "; a pool that is retained on the host takes precedence once the host is known"
	}
	return message
}

func (a Choice) recordedMessage(b Boot) string {
	if node := b.Config.Status.NodeRef; node.IsDefined() {
		return fmt.Sprintf("pool %q is recorded for Node %s", a.Role, node.Name)
	}
	message := fmt.Sprintf("pool %q is recorded, because the data Secret was created for it and never changes", a.Role)
	if a.WithoutRecord != "" && a.WithoutRecord != a.Role {
		message += fmt.Sprintf("; to boot into pool %q, to which the Machine belongs now, %s", a.WithoutRecord, outlook.HowToReplace(b.Config))
	}
	return message
}
