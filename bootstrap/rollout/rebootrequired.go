package rollout

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var (
	bootPattern    = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	packagePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_:~-]{0,127}$`)
)

// rebootRequiredOf reads agentv1.RebootRequiredAnnotation. It ignores what is malformed, and what was reported in an
// earlier boot than that of the kubelet.
func rebootRequiredOf(node *corev1.Node) (required bootstrapv1.RebootRequired) {
	annotation := node.Annotations[agentv1.RebootRequiredAnnotation]
	lines := strings.Split(annotation[:min(len(annotation), agentv1.MaxReason)], "\n")
	boot, since, _ := strings.Cut(lines[0], " ")
	if !bootPattern.MatchString(boot) || boot != node.Status.NodeInfo.BootID {
		return required
	}
	required.BootID, required.Since = boot, bootstrapv1.RebootRequiredLater
	if since == agentv1.RebootRequiredAtBoot {
		required.Since = bootstrapv1.RebootRequiredAtBoot
	}
	for _, name := range lines[1:] {
		if len(required.Packages) < bootstrapv1.MaxRebootPackages && packagePattern.MatchString(name) && !slices.Contains(required.Packages, name) {
			required.Packages = append(required.Packages, name)
		}
	}
	return required
}

// rebootInterval is the shortest time between two reboots that a host asks for: what it reports is a claim.
const rebootInterval = 24 * time.Hour

// RebootDecision says whether a host is rebooted because its operating system needs that.
type RebootDecision struct {
	// IsDue is true if a reboot is to be requested now. Wait is how long that takes otherwise, or 0.
	IsDue bool
	Wait  time.Duration
	// Why is why not, for people, or "".
	Why string
}

// DecideReboot decides whether a host of a pool is rebooted because its operating system needs that.
func DecideReboot(required bootstrapv1.RebootRequired, last record.RebootRequest, p *poolv1.MachineConfigPool, now time.Time) RebootDecision {
	left := rebootInterval - now.Sub(last.Time)
	switch {
	case required.BootID == "":
		return RebootDecision{}
	case !p.Spec.Updates.RebootsIfRequired():
		return RebootDecision{Why: "to reboot it, run " + Command("restart", p) + ", or set spec.updates.rebootRequiredPolicy of the pool to " + string(poolv1.RebootRequiredReboot)}
	case last.Boot == required.BootID:
		return RebootDecision{Why: "it reboots when it is its turn"}
	case last.Boot != "" && required.Since == bootstrapv1.RebootRequiredAtBoot:
		return RebootDecision{Why: "the reboot for this has not ended it, so there is no second one: correct the cause on the host, where /run/reboot-required says what it is"}
	case last.Boot != "" && left > 0 && left <= rebootInterval: // else a clock was set
		return RebootDecision{Wait: left, Why: "it rebooted for this less than a day ago, so it waits"}
	}
	return RebootDecision{IsDue: true, Why: "it reboots when it is its turn"}
}

// maxRebootPackages is how many packages a message names.
const maxRebootPackages = 3

// DescribeRebootRequired says that the operating system of a host needs a reboot, and what happens, or "".
func DescribeRebootRequired(config *bootstrapv1.PoolbootConfig, p *poolv1.MachineConfigPool, now time.Time) string {
	required := config.Status.Update.RebootRequired
	if required.BootID == "" {
		return ""
	}
	text := "The operating system needs a reboot"
	if len(required.Packages) > 0 {
		text += " (" + excerpt.List(maxRebootPackages, required.Packages) + ")"
	}
	return text + ": " + DecideReboot(required, record.RebootRequestOf(config), p, now).Why
}
