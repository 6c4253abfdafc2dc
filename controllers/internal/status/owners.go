package status

import (
	"fmt"
	"strings"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	bootrecord "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Owner is the name of a controller that writes status.
type Owner string

// The owners of status. ConfigServer is a separate program: it patches its fields by name, and writes no others.
const (
	PoolbootConfig    Owner = "poolbootconfig"
	Boot              Owner = "boot"
	Certificate       Owner = "certificate"
	Node              Owner = "node"
	BareMetalHost     Owner = "baremetalhost"
	MachineConfig     Owner = "machineconfig"
	MachineConfigPool Owner = "machineconfigpool"
	Enrollment        Owner = "enrollment"
	Update            Owner = "update"
	ConfigServer      Owner = "config server"
)

// ForeignError is the error of a change to a part of the status that another controller owns. It indicates a bug in
// Poolboot.
type ForeignError struct {
	// Object is the object's kind, namespace and name.
	Object string
	// Path is the changed part of the status, Writer is the controller that changed it, and Owner is the controller
	// that owns it.
	Path          string
	Writer, Owner Owner
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("status of %s: the %s controller must not write %s, which the %s controller owns", e.Object, e.Writer, e.Path, e.Owner)
}

// change is a patch of a PoolbootConfig's status, from one version to the next.
type change struct {
	before, after *bootstrapv1.PoolbootConfigStatus
	isInline      bool
	hasJoined     bool
}

func changeOf(before, after *bootstrapv1.PoolbootConfig) change {
	return change{before: &before.Status, after: &after.Status, isInline: after.Spec.IsInline(), hasJoined: bootrecord.HasJoined(after)}
}

// part is a part of a PoolbootConfig's status. It has one owner, unless controllers hand it over.
type part struct {
	owner Owner
	// handover returns the owner of a change, if controllers hand the part over. It replaces owner, which is the first
	// owner.
	handover func(change) Owner
}

// parts are all parts of a PoolbootConfig's status.
var parts = map[string]part{
	"observedGeneration":              {owner: PoolbootConfig},
	"initialization":                  {owner: PoolbootConfig},
	"dataSecretName":                  {owner: PoolbootConfig},
	"poolRole":                        {owner: PoolbootConfig, handover: record},
	"fallbackPoolRole":                {owner: Node},
	"nodeRef":                         {owner: Boot, handover: record},
	"hostRef":                         {owner: Boot, handover: hostRef},
	"hostAddresses":                   {owner: PoolbootConfig},
	"derivedNodeLabels":               {owner: Boot, handover: derivedLabels},
	"requests":                        {owner: ConfigServer, handover: requests},
	"reportedAddresses":               {owner: PoolbootConfig},
	"certificate":                     {owner: Certificate, handover: certificate},
	"boot.servedConfiguration":        {owner: PoolbootConfig, handover: configuration},
	"boot.hostChosenTime":             {owner: Boot},
	"boot.preparedTime":               {owner: Boot},
	"boot.kubeletRegisteredTime":      {owner: Node},
	"boot.nodeReadyTime":              {owner: Node},
	"boot.tokenRevokedTime":           {owner: Node},
	"boot.credentialID":               {owner: Boot, handover: credential},
	"boot.credentialExpirationTime":   {owner: Boot, handover: credential},
	"update.slot":                     {owner: Update},
	"update.desired":                  {owner: Update},
	"update.desiredRevision":          {owner: Update},
	"update.force":                    {owner: Update},
	"update.runningRevision":          {owner: Update},
	"update.unansweredTime":           {owner: Update},
	"update.unavailableReason":        {owner: Update},
	"update.agentVersion":             {owner: Update},
	"update.stage":                    {owner: Update},
	"update.stageTime":                {owner: Update},
	"update.registeredTime":           {owner: Update},
	"conditions[Ready]":               {owner: PoolbootConfig},
	"conditions[Paused]":              {owner: PoolbootConfig},
	"conditions[PoolDecided]":         {owner: PoolbootConfig},
	"conditions[DataSecretAvailable]": {owner: PoolbootConfig},
	"conditions[UserDataSet]":         {owner: BareMetalHost},
	"conditions[TokenUsable]":         {owner: PoolbootConfig},
	"conditions[BootPrepared]":        {owner: Boot, handover: bootPrepared},
	"conditions[IgnitionSucceeded]":   {owner: PoolbootConfig},
	"conditions[NodeInPool]":          {owner: Boot, handover: nodeInPool},
	"conditions[Updated]":             {owner: Update},
}

// record returns the owner of the record of the Node, its pool and its configuration. The record passes from one
// controller to the next by a write that only the next one makes. The poolbootconfig controller decides the pool,
// before and after it records a data Secret. The boot controller takes the record over when it prepares or withdraws a
// boot. The node controller owns it as long as a Node is recorded.
func record(c change) Owner {
	switch {
	case c.before.DataSecretName == "" && c.after.DataSecretName != "":
		return PoolbootConfig
	case c.prepares():
		return Boot
	case c.before.NodeRef.IsDefined() || c.after.NodeRef.IsDefined():
		return Node
	}
	return PoolbootConfig
}

// configuration returns the owner of the record of the configuration that a host was served. Once the host has joined,
// the update controller records the configuration that it told the host to run.
func configuration(c change) Owner {
	owner := record(c)
	if owner == Node && c.after.Update.Desired.Name != "" && c.after.Boot.ServedConfiguration == c.after.Update.Desired {
		return Update
	}
	return owner
}

// hostRef returns the owner of the record of the host. The node controller owns it once the host has joined: it records
// the host again after clusterctl move.
func hostRef(c change) Owner {
	if c.hasJoined && !c.prepares() {
		return Node
	}
	return Boot
}

// derivedLabels returns the owner of the derived labels. The node controller restores them after clusterctl move, with
// the record of the Node.
func derivedLabels(c change) Owner {
	if !c.before.NodeRef.IsDefined() && c.after.NodeRef.IsDefined() {
		return record(c)
	}
	return Boot
}

// credential returns the owner of the record of the join credential. The poolbootconfig controller owns that of an
// inline data Secret until both are recorded. From then on, and for all other hosts, the boot controller owns it, until
// the node controller deletes it.
func credential(c change) Owner {
	switch {
	case !c.before.Boot.TokenRevokedTime.Equal(c.after.Boot.TokenRevokedTime):
		return Node
	case c.prepares():
		return Boot
	case c.isInline && (c.before.DataSecretName == "" || c.before.Boot.CredentialID == ""):
		return PoolbootConfig
	}
	return Boot
}

// certificate returns the owner of the record of a granted certificate. The boot controller removes the record, and
// restores it after clusterctl move.
func certificate(c change) Owner {
	if c.prepares() || !c.after.Certificate.IsDefined() {
		return Boot
	}
	return Certificate
}

// requests returns the owner of the record of a host's requests. The boot controller removes what belongs to a host
// that is replaced.
func requests(c change) Owner {
	if c.before.HostRef != c.after.HostRef {
		return Boot
	}
	return ConfigServer
}

// bootPrepared returns the owner of the condition BootPrepared. While the condition stays True, the node controller
// updates the pool in its message.
func bootPrepared(c change) Owner {
	if !c.prepares() && isTrue(c.before, bootstrapv1.BootPreparedCondition) && isTrue(c.after, bootstrapv1.BootPreparedCondition) {
		return Node
	}
	return Boot
}

// nodeInPool returns the owner of the condition NodeInPool. The boot controller sets the first one with its record,
// which saves a write, and removes it with the record.
func nodeInPool(c change) Owner {
	if c.prepares() {
		return Boot
	}
	return Node
}

// prepares reports whether a change is the boot controller's record of a boot, or of its withdrawal. Only these set
// preparedTime.
func (c change) prepares() bool {
	return !c.before.Boot.PreparedTime.Equal(c.after.Boot.PreparedTime)
}

func isTrue(status *bootstrapv1.PoolbootConfigStatus, condition string) bool {
	return conditions.IsTrue(&bootstrapv1.PoolbootConfig{Status: *status}, condition)
}

// ownerOf returns the owner of a change.
func (p part) ownerOf(c change) Owner {
	if p.handover != nil {
		return p.handover(c)
	}
	return p.owner
}

// checkOwnership returns a ForeignError unless this owner owns all changed parts of an object's status.
func (o Owner) checkOwnership(before, after client.Object, changed []string) error {
	for _, path := range changed {
		owner := Owner("")
		switch after := after.(type) {
		case *bootstrapv1.PoolbootConfig:
			owner = parts[path].ownerOf(changeOf(before.(*bootstrapv1.PoolbootConfig), after))
		case *poolv1.MachineConfigPool:
			owner = MachineConfigPool
			switch path {
			case "slots", "slotsOpenTime", "conditions[" + poolv1.UpdateGatesOpenCondition + "]":
				owner = Update
			}
		case *poolv1.MachineConfig:
			owner = MachineConfig
		case *poolv1.Enrollment:
			owner = Enrollment
		}
		if owner != o {
			return &ForeignError{Object: fmt.Sprintf("%s %s", kindOf(after), client.ObjectKeyFromObject(after)), Path: path, Writer: o, Owner: owner}
		}
	}
	return nil
}

func kindOf(object client.Object) string {
	kind := fmt.Sprintf("%T", object)
	return kind[strings.LastIndex(kind, ".")+1:]
}
