package pool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/cure"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Reason says on what ground the pool of a boot was decided. It is a reason of the PoolDecided condition.
type Reason string

// Grounds on which the pool of a boot is decided.
const (
	FromRecord Reason = bootstrapv1.PoolRecordedReason
	FromHost   Reason = bootstrapv1.PoolRetainedByHostReason
	FromSpec   Reason = bootstrapv1.PoolSpecifiedInConfigReason
	FromLabels Reason = bootstrapv1.PoolFromMachineLabelsReason
	Defaulted  Reason = bootstrapv1.PoolDefaultedToWorkerReason
)

// Boot is all that decides into which pool a host boots. Labels of the PoolbootConfig are not among it: they may come
// from its template, and Cluster API puts only the Machine's on the Node.
type Boot struct {
	// Config is the PoolbootConfig that the host boots by.
	Config *bootstrapv1.PoolbootConfig
	// Machine owns the config; nil for a host without a Machine.
	Machine *clusterv1.Machine
	// DataSecret is the metadata of an inline data Secret that exists; nil when there is none, or when status.poolRole
	// is on record.
	DataSecret metav1.Object
	// Host is the metadata of the BareMetalHost that boots; nil while it is not known.
	Host metav1.Object
	// Pools are all pools of the Cluster.
	Pools []poolv1.MachineConfigPool
}

// Assignment is the pool that a host boots into.
type Assignment struct {
	// Role is the pool's role. With an error it is the role to leave on record: that of a custom pool which does not
	// exist now, so that the boot goes on when the pool is back; else empty.
	Role string
	// Reason is the ground.
	Reason Reason
	// Retained is the role of the pool that the host keeps for Machines of this Cluster; empty when that counts for
	// nothing.
	Retained string
	// Now is what would be decided without a record; equal to Role unless Reason is FromRecord.
	Now string
}

// ForBoot decides into which pool a host boots. It is the only place where that is decided.
//
// The record stands from the moment when something was made by it that does not change any more: the Node or, with an
// inline source, the data Secret. Before that, in this order: the pool that the host keeps, if the config asks for
// that; spec.poolRole; what Decide makes of the Machine's labels; worker. But no Machine becomes a worker for want of
// its custom pool: one with a role label that no pool selects is an *UnselectedError, one whose custom pool on record
// is gone a *NotFoundError; spec.poolRole goes before both.
//
// The pool must exist (*NotFoundError, *DuplicateError) and its labels be derivable (*NotRegistrableError), unless it
// is on record. Labels of several custom pools are a *ConflictError, those of a control plane a *ControlPlaneError.
func ForBoot(b Boot) (Assignment, error) {
	decided, err := b.decide()
	err = b.withCure(err)
	recorded := b.recorded()
	switch {
	case recorded == "" && err != nil:
		return Assignment{Role: b.missing(), Retained: decided.Retained}, err
	case recorded == "":
		return decided, nil
	case err == nil && decided.Role == recorded && record.HasNode(b.Config) && !b.mayStayOnHost():
		return decided, nil
	}
	return Assignment{Role: recorded, Reason: FromRecord, Retained: decided.Retained, Now: decided.Role}, nil
}

// Pool returns the pool of a role for the host.
func (b Boot) Pool(role string) (*poolv1.MachineConfigPool, error) {
	p, err := OfRole(b.Pools, role)
	return p, b.withCure(err)
}

// withCure adds to an error about a pool that does not exist what helps the host.
func (b Boot) withCure(err error) error {
	if missing, is := errors.AsType[*NotFoundError](err); is {
		return &NotFoundError{Role: missing.Role, Cure: cureMissing(b.Config, missing.Role)}
	}
	return err
}

// cureMissing says what helps a host when the Cluster has no pool of the role that it is to boot into.
func cureMissing(config *bootstrapv1.PoolbootConfig, role string) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return fmt.Sprintf("create it, or name another role in the annotation %s of %s", poolv1.HostPoolAnnotation, cure.Whose(config))
	case record.EnrolledHost:
		return fmt.Sprintf("create it, or delete %s and its Node, and enroll the host with a token of another pool", cure.Whose(config))
	}
	switch {
	case config.Spec.IsInline() && config.Status.DataSecretName != "":
		return fmt.Sprintf("create it, or %s. The data Secret was made for this pool and is written once; the replacement boots into the pool of its labels", cure.Replace(config))
	case config.Spec.PoolRole != "":
		return "create it, or correct spec.poolRole of the PoolbootConfig and of its template"
	case role == poolv1.RoleWorker:
		return "create it"
	}
	return "create it, or set spec.poolRole of the PoolbootConfig (worker, for example) to boot into another pool"
}

// decide is ForBoot without a record.
func (b Boot) decide() (Assignment, error) {
	kept := ""
	if b.mayStayOnHost() && b.Host != nil {
		if kept = retained(b.Host, b.Pools); kept != "" {
			a, err := b.usable(kept, FromHost, kept)
			if _, gone := errors.AsType[*NotFoundError](err); !gone {
				return a, err
			}
		}
	}
	if role := b.Config.Spec.PoolRole; role != "" {
		return b.usable(role, FromSpec, kept)
	}
	decision, err := Decide(b.machineLabels(), b.Pools)
	switch {
	case err != nil:
		return Assignment{Retained: kept}, err
	case decision.ControlPlane:
		return Assignment{Retained: kept}, &ControlPlaneError{Unsupported: decision.Unsupported}
	case IsCustom(decision.Role):
		return b.usable(decision.Role, FromLabels, kept)
	}
	if unselected := b.unselected(); len(unselected) > 0 {
		return Assignment{Retained: kept}, &UnselectedError{Labels: unselected}
	}
	if missing := b.missing(); missing != "" {
		return Assignment{Retained: kept}, &NotFoundError{Role: missing}
	}
	if decision.Role == poolv1.RoleWorker {
		return b.usable(decision.Role, FromLabels, kept)
	}
	return b.usable(poolv1.RoleWorker, Defaulted, kept)
}

// usable is the assignment to a pool that a host can boot into.
func (b Boot) usable(role string, why Reason, kept string) (Assignment, error) {
	p, err := OfRole(b.Pools, role)
	if err == nil {
		_, err = Labels(*p)
	}
	if err != nil {
		return Assignment{Retained: kept}, err
	}
	return Assignment{Role: role, Reason: why, Retained: kept, Now: role}, nil
}

// recorded is the role on record that stands whatever labels and pools say by now; "" when there is none.
func (b Boot) recorded() string {
	isInline := b.Config.Spec.IsInline()
	switch status := &b.Config.Status; {
	case isInline && b.DataSecret != nil:
		if made := MadeFor(b.DataSecret, b.Pools); made != "" {
			return made
		}
		return status.PoolRole
	case record.HasNode(b.Config), isInline && status.DataSecretName != "":
		return status.PoolRole
	}
	return ""
}

// missing is the role on record of a custom pool that does not exist; "" when there is none.
func (b Boot) missing() string {
	role := b.Config.Status.PoolRole
	if _, err := OfRole(b.Pools, role); IsCustom(role) && errors.As(err, new(*NotFoundError)) {
		return role
	}
	return ""
}

// unselected are the role labels of the Machine, as key=value in order, that ask for no pool there is. Whether the
// Machine is in a custom pool is known to be false.
func (b Boot) unselected() (unselected []string) {
	known := map[string]bool{poolv1.NodeRoleLabelPrefix + poolv1.RoleWorker: true}
	for _, role := range controlPlaneRoles {
		known[poolv1.NodeRoleLabelPrefix+role] = true
	}
	for _, p := range b.Pools {
		if !IsCustom(p.Spec.PoolRole) {
			for _, key := range SelectorKeys(p) {
				known[key] = true
			}
		}
	}
	of := b.machineLabels()
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if strings.HasPrefix(key, poolv1.NodeRoleLabelPrefix) && !known[key] {
			unselected = append(unselected, key+"="+of[key])
		}
	}
	return unselected
}

func (b Boot) mayStayOnHost() bool { return StaysOnHost(&b.Config.Spec.BootSpec) }

func (b Boot) machineLabels() map[string]string {
	if b.Machine == nil {
		return nil
	}
	return b.Machine.Labels
}

// MadeFor returns the role of the pool that an inline data Secret was made for; "" when it does not say. One that lacks
// the annotation still names the rendered config that is in it.
func MadeFor(dataSecret metav1.Object, pools []poolv1.MachineConfigPool) string {
	made := dataSecret.GetAnnotations()
	if role := made[bootstrapv1.DataSecretPoolAnnotation]; role != "" {
		return role
	}
	if p := OfRendered(pools, made[bootstrapv1.OverlayConfigurationAnnotation]); p != nil {
		return p.Spec.PoolRole
	}
	return ""
}

// Message says in words why it is that pool, for the condition PoolDecided.
func (a Assignment) Message(b Boot) string {
	var message string
	switch a.Reason {
	case FromRecord:
		return a.recordedMessage(b)
	case FromHost:
		return fmt.Sprintf("pool %q, which BareMetalHost %s keeps", a.Role, b.Host.GetName())
	case FromSpec:
		message = fmt.Sprintf("pool %q, by spec.poolRole", a.Role)
	case FromLabels:
		message = fmt.Sprintf("pool %q, by the Machine's labels", a.Role)
	default:
		message = fmt.Sprintf("pool %q, because no label of the Machine names another", a.Role)
	}
	if b.mayStayOnHost() && b.Host == nil {
		message += "; one that the host keeps comes first, once the host is known"
	}
	return message
}

func (a Assignment) recordedMessage(b Boot) string {
	if node := b.Config.Status.NodeRef; node.IsDefined() {
		return fmt.Sprintf("pool %q is recorded for Node %s", a.Role, node.Name)
	}
	message := fmt.Sprintf("pool %q is recorded, because the data Secret, which is written once, was made for it", a.Role)
	if a.Now != "" && a.Now != a.Role {
		message += fmt.Sprintf("; to boot into pool %q, which the Machine belongs to now, %s", a.Now, cure.Replace(b.Config))
	}
	return message
}
