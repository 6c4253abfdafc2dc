package outlook

import (
	"fmt"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// OwnerOf returns the object that the host belongs to.
func OwnerOf(config *bootstrapv1.PoolbootConfig) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return "BareMetalHost " + config.Spec.Host.BareMetalHostName
	case record.EnrolledHost, record.AdoptedHost:
		return "PoolbootConfig " + config.Name
	}
	if name := record.MachineName(config); name != "" {
		return "Machine " + name
	}
	return "the Machine"
}

// HowToRemove returns how to remove a host permanently.
func HowToRemove(config *bootstrapv1.PoolbootConfig) string {
	if record.HostKindOf(config) == record.BareMetalHost {
		return fmt.Sprintf("remove spec.image of %s", OwnerOf(config))
	}
	return "delete " + OwnerOf(config)
}

// HowToReplace returns how to boot a host from the start, with another token and another Node.
func HowToReplace(config *bootstrapv1.PoolbootConfig) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return reprovision(config)
	case record.EnrolledHost:
		return fmt.Sprintf("delete %s and its Node, and install the host again", OwnerOf(config))
	case record.AdoptedHost:
		return "replace its host as its owner installs hosts"
	}
	return fmt.Sprintf("delete %s: a new Machine replaces it", OwnerOf(config))
}

// Renewing is the section of the documentation that has the commands to replace Machines.
const Renewing = "docs/pools.md#renewing-machines"

// HowToRenew returns how to boot a host with the current configuration of its pool.
func HowToRenew(config *bootstrapv1.PoolbootConfig) string {
	if !record.IsMachineless(config) {
		return "roll out its MachineDeployment to renew it, see " + Renewing
	}
	return HowToReplace(config)
}

// HowToRotate returns how to boot a host with another token, which replaces its current token.
func HowToRotate(config *bootstrapv1.PoolbootConfig) string {
	rotate := fmt.Sprintf("annotate PoolbootConfig %s with %s", config.Name, bootstrapv1.RotateTokenAnnotation)
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return rotate + " and then " + reprovision(config)
	case record.EnrolledHost:
		return "name a Secret with another token in spec.tokenSecretRef of the Enrollment"
	case record.AdoptedHost:
		return "an adopted host has no token"
	}
	return rotate + " and have the host provisioned again, or " + HowToRemove(config)
}

// reprovision returns how to install an annotated BareMetalHost again.
func reprovision(config *bootstrapv1.PoolbootConfig) string {
	return HowToRemove(config) + ", and set it again when the host is available"
}

// HowToRelabel returns where to change the labels that the Node of a host gets.
func HowToRelabel(config *bootstrapv1.PoolbootConfig) string {
	const ofConfig = "node.labels and node.labelRules of the PoolbootConfig and the pool"
	if !record.IsMachineless(config) {
		return "change the labels of the Machine (those of its MachineDeployment) or " + ofConfig
	}
	return "change " + ofConfig
}
