package status

import (
	"fmt"
	"strings"

	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Owner is the name of a controller that writes status.
type Owner string

// The owners of status. ConfigServer is a program of its own: it patches its fields by name, and writes no other.
const (
	PoolbootConfig    Owner = "poolbootconfig"
	Boot              Owner = "boot"
	Certificate       Owner = "certificate"
	Node              Owner = "node"
	Token             Owner = "token"
	BareMetalHost     Owner = "baremetalhost"
	MachineConfigPool Owner = "machineconfigpool"
	Enrollment        Owner = "enrollment"
	ConfigServer      Owner = "config server"
)

// ForeignError is about a change of status that is another controller's to make. It is an error of the program.
type ForeignError struct {
	// Object is the object's kind, namespace and name.
	Object string
	// Path is the part of the status, Writer who changed it, and Owner whose it is.
	Path          string
	Writer, Owner Owner
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("status of %s: the %s controller must not write %s, which the %s controller owns", e.Object, e.Writer, e.Path, e.Owner)
}

// change is a patch of a PoolbootConfig's status, from one version to the next.
type change struct {
	was, now *bootstrapv1.PoolbootConfigStatus
	isInline bool
}

func changeOf(before, after *bootstrapv1.PoolbootConfig) change {
	return change{was: &before.Status, now: &after.Status, isInline: after.Spec.IsInline()}
}

// part is a part of a PoolbootConfig's status. It has one owner, unless it is handed over.
type part struct {
	owner Owner
	// handover names the owner of a change where controllers hand a part over. It replaces owner, who begins.
	handover func(change) Owner
}

// parts are all parts of a PoolbootConfig's status. docs/design.md has the same table.
var parts = map[string]part{
	"observedGeneration":              {owner: PoolbootConfig},
	"initialization":                  {owner: PoolbootConfig},
	"dataSecretName":                  {owner: PoolbootConfig},
	"poolRole":                        {owner: PoolbootConfig, handover: record},
	"configuration":                   {owner: PoolbootConfig, handover: record},
	"nodeRef":                         {owner: Boot, handover: record},
	"hostRef":                         {owner: Boot},
	"hostAddresses":                   {owner: Token},
	"derivedNodeLabels":               {owner: Boot},
	"boot.hostChosenTime":             {owner: Boot},
	"boot.firstRequestedTime":         {owner: ConfigServer, handover: requests},
	"boot.requestedTime":              {owner: ConfigServer},
	"boot.addresses":                  {owner: ConfigServer, handover: requests},
	"boot.addresses[].reportedTime":   {owner: Token},
	"boot.preparedTime":               {owner: Boot},
	"boot.servedTime":                 {owner: ConfigServer, handover: requests},
	"boot.kubeletRegisteredTime":      {owner: Node},
	"boot.nodeReadyTime":              {owner: Node},
	"boot.tokenRevokedTime":           {owner: Node},
	"boot.credentialID":               {owner: Boot, handover: credential},
	"boot.credentialExpirationTime":   {owner: Boot, handover: credential},
	"boot.certificate":                {owner: Certificate, handover: certificate},
	"conditions[Ready]":               {owner: PoolbootConfig},
	"conditions[Paused]":              {owner: PoolbootConfig},
	"conditions[PoolDecided]":         {owner: PoolbootConfig},
	"conditions[DataSecretAvailable]": {owner: PoolbootConfig},
	"conditions[UserDataSet]":         {owner: BareMetalHost},
	"conditions[TokenUsable]":         {owner: Token},
	"conditions[BootPrepared]":        {owner: Boot, handover: bootPrepared},
	"conditions[NodeInPool]":          {owner: Boot, handover: nodeInPool},
}

// record is whose the record of the Node, its pool and its configuration is. It goes from controller to controller by
// a write that only the next one makes: the poolbootconfig controller decides the pool until it puts a data Secret on
// record and beyond, the boot controller takes the record over when it prepares or withdraws a boot, and the node
// controller has it as long as a Node is on record.
func record(c change) Owner {
	switch {
	case c.was.DataSecretName == "" && c.now.DataSecretName != "":
		return PoolbootConfig
	case c.prepares():
		return Boot
	case c.was.NodeRef.IsDefined() || c.now.NodeRef.IsDefined():
		return Node
	}
	return PoolbootConfig
}

// credential is whose the record of the join credential is. One in an inline data Secret is the poolbootconfig
// controller's until both are on record. From then on, and for every other host, it is the boot controller's, until the
// node controller deletes it.
func credential(c change) Owner {
	switch {
	case !c.was.Boot.TokenRevokedTime.Equal(c.now.Boot.TokenRevokedTime):
		return Node
	case c.prepares():
		return Boot
	case c.isInline && (c.was.DataSecretName == "" || c.was.Boot.CredentialID == ""):
		return PoolbootConfig
	}
	return Boot
}

// certificate is whose the grant of a certificate is: the boot controller withdraws it, and finds it again after
// clusterctl move.
func certificate(c change) Owner {
	if c.prepares() || !c.now.Boot.Certificate.IsDefined() {
		return Boot
	}
	return Certificate
}

// requests is whose the record of a host's requests is: the boot controller drops that of a host that leaves.
func requests(c change) Owner {
	if c.was.HostRef != c.now.HostRef {
		return Boot
	}
	return ConfigServer
}

// bootPrepared is whose the condition BootPrepared is: while it stays True, the node controller keeps the pool in its
// message current.
func bootPrepared(c change) Owner {
	if !c.prepares() && isTrue(c.was, bootstrapv1.BootPreparedCondition) && isTrue(c.now, bootstrapv1.BootPreparedCondition) {
		return Node
	}
	return Boot
}

// nodeInPool is whose the condition NodeInPool is: the boot controller sets the first one with its record, which saves
// a write, and removes it with the record.
func nodeInPool(c change) Owner {
	if c.prepares() {
		return Boot
	}
	return Node
}

// prepares reports whether a change is the boot controller's record of a boot, or of its withdrawal: only these set the
// time.
func (c change) prepares() bool {
	return !c.was.Boot.PreparedTime.Equal(c.now.Boot.PreparedTime)
}

func isTrue(status *bootstrapv1.PoolbootConfigStatus, condition string) bool {
	return conditions.IsTrue(&bootstrapv1.PoolbootConfig{Status: *status}, condition)
}

// ownerOf returns the owner of a change of one path.
func ownerOf(path string, c change) Owner {
	p := parts[path]
	if p.handover != nil {
		return p.handover(c)
	}
	return p.owner
}

// mayWrite returns a ForeignError unless all changed parts of an object's status are the owner's.
func (o Owner) mayWrite(before, after client.Object, changed []string) error {
	for _, path := range changed {
		owner := Owner("")
		switch now := after.(type) {
		case *bootstrapv1.PoolbootConfig:
			owner = ownerOf(path, changeOf(before.(*bootstrapv1.PoolbootConfig), now))
		case *poolv1.MachineConfigPool:
			owner = MachineConfigPool
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
