// Package cure words what a person can do about a host, by what the host is: a Machine's, a BareMetalHost that asks for
// a pool by an annotation, or one that enrolled with a token. What helps one of them is impossible for another: nobody
// can delete the Machine of a host that enrolled. It is pure.
package cure

import (
	"fmt"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Whose names the object that the host belongs to.
func Whose(config *bootstrapv1.PoolbootConfig) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return "BareMetalHost " + config.Spec.Host.BareMetalHostName
	case record.EnrolledHost:
		return "PoolbootConfig " + config.Name
	}
	for _, owner := range config.OwnerReferences {
		if owner.Kind == "Machine" {
			return "Machine " + owner.Name
		}
	}
	return "the Machine"
}

// Remove takes a host away that does not come back.
func Remove(config *bootstrapv1.PoolbootConfig) string {
	if record.HostKindOf(config) == record.BareMetalHost {
		return fmt.Sprintf("remove spec.image of %s", Whose(config))
	}
	return "delete " + Whose(config)
}

// Replace has a host booted from the beginning, with another token and another Node.
func Replace(config *bootstrapv1.PoolbootConfig) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return provision(config)
	case record.EnrolledHost:
		return fmt.Sprintf("delete %s and its Node, and install the host again", Whose(config))
	}
	return fmt.Sprintf("delete %s: another one takes its place", Whose(config))
}

// Renewing is where the commands are by which Machines are replaced.
const Renewing = "docs/pools.md#renewing-machines"

// Renew has a host boot into what its pool hands out now.
func Renew(config *bootstrapv1.PoolbootConfig) string {
	if !record.IsMachineless(config) {
		return "roll out its MachineDeployment to renew it, see " + Renewing
	}
	return Replace(config)
}

// Rotate has a host boot with another token, which ends the one that it has.
func Rotate(config *bootstrapv1.PoolbootConfig) string {
	rotate := fmt.Sprintf("annotate PoolbootConfig %s with %s", config.Name, bootstrapv1.RotateTokenAnnotation)
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return rotate + " and then " + provision(config)
	case record.EnrolledHost:
		return "name a Secret with another token in spec.tokenSecretRef of the Enrollment"
	}
	return rotate + " and have the host provisioned again, or " + Remove(config)
}

// provision has Metal3 install an annotated BareMetalHost again.
func provision(config *bootstrapv1.PoolbootConfig) string {
	return Remove(config) + ", and put it back once the host is available"
}

// Relabel changes where a host's Node gets its labels from.
func Relabel(config *bootstrapv1.PoolbootConfig) string {
	const ofConfig = "the nodeLabels and nodeLabelRules of the PoolbootConfig and the pool"
	if !record.IsMachineless(config) {
		return "change the labels of the Machine (those of its MachineDeployment) or " + ofConfig
	}
	return "change " + ofConfig
}
