package agent

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

// Files of Debian and Ubuntu: the first one exists while the operating system needs a reboot, and the second one has
// the packages because of which it does, one a line.
const (
	rebootRequiredPath = "run/reboot-required"
	rebootPackagesPath = "run/reboot-required.pkgs"
)

// atBoot is how long after a boot what the host needs counts as something that it needed from the beginning.
const atBoot = 10 * time.Minute

// maxPackages is how many packages are reported, and maxPackagesFile how much of the file is read.
const (
	maxPackages     = 32
	maxPackagesFile = 64 << 10
)

// packagePattern matches the names of packages, also with an architecture.
var packagePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_:~-]{0,127}$`)

// rebootWatch is what the operating system says about a reboot that it needs.
type rebootWatch struct {
	isKnown, isRequired bool
	// isAtBoot is set if it needed the reboot from the beginning of this boot. An agent that starts later is told so by
	// what an earlier one reported: isRecalled is set then.
	isAtBoot, isRecalled bool
	packages             []string
}

// lookAtReboot finds out whether the operating system needs a reboot, and reports whether that changed.
func (a *Agent) lookAtReboot() (changed bool) {
	found := rebootWatch{isKnown: true, isRecalled: a.rebootNeed.isRecalled}
	if info, err := a.Root.Lstat(rebootRequiredPath); err == nil && info.Mode().IsRegular() {
		found.isRequired, found.packages = true, a.rebootPackages()
		found.isAtBoot = a.rebootNeed.isAtBoot || a.Clock.Uptime() < atBoot
	}
	changed = !a.rebootNeed.isKnown || found.isRequired != a.rebootNeed.isRequired || !slices.Equal(found.packages, a.rebootNeed.packages)
	if found.isRequired != a.rebootNeed.isRequired {
		a.Log.Info("whether the operating system needs a reboot changed", "isRequired", found.isRequired, "packages", found.packages)
	}
	a.rebootNeed = found
	return changed
}

// rebootPackages returns the first packages because of which a reboot is needed, each once.
func (a *Agent) rebootPackages() (packages []string) {
	file, err := a.Root.OpenFile(rebootPackagesPath, os.O_RDONLY|syscall.O_NONBLOCK, 0) // anything can be there
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	content, _ := io.ReadAll(io.LimitReader(file, maxPackagesFile))
	for line := range strings.Lines(string(content)) {
		name := strings.TrimSpace(line)
		if len(packages) < maxPackages && packagePattern.MatchString(name) && !slices.Contains(packages, name) {
			packages = append(packages, name)
		}
	}
	return packages
}

// recallReboot learns from the Node what an earlier agent reported in this boot.
func (a *Agent) recallReboot(node Node) {
	if a.rebootNeed.isRecalled || !a.rebootNeed.isKnown || !node.Known {
		return
	}
	first, _, _ := strings.Cut(node.Annotations[agentv1.RebootRequiredAnnotation], "\n")
	a.rebootNeed.isRecalled, a.rebootNeed.isAtBoot = true, a.rebootNeed.isRequired && (a.rebootNeed.isAtBoot || first == a.Clock.BootID()+" "+agentv1.RebootRequiredAtBoot)
}

// report returns the value of agentv1.RebootRequiredAnnotation.
func (r rebootWatch) report(boot string) string {
	if !r.isRequired {
		return ""
	}
	if r.isAtBoot {
		boot += " " + agentv1.RebootRequiredAtBoot
	}
	return shorten(strings.Join(append([]string{boot}, r.packages...), "\n"), agentv1.MaxReason)
}
