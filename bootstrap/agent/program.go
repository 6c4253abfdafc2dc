package agent

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// replaceProgram replaces the program of the agent if the manager offers another one. It returns ErrReplaced if it did.
func (a *Agent) replaceProgram(ctx context.Context, offer *assignment.Agent) error {
	if a.Program == nil || offer == nil {
		return nil
	}
	version, sum, architecture := a.Program.Running()
	want := strings.ToLower(offer.SHA512[architecture])
	if want == "" || want == sum || a.journal.RefusedProgram != nil && a.journal.RefusedProgram.Of == want {
		return nil
	}
	if why := whyNotReplace(version, offer); why != "" {
		a.Log.Warn("the offered program is not used", "version", offer.Version, "reason", why)
		return a.refuseProgram(want, why)
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	contents, err := a.source.Program(limited, want)
	if err != nil {
		return fmt.Errorf("download version %s of the agent: %w", offer.Version, err)
	}
	if !hasSHA512(contents, want) {
		return fmt.Errorf("version %s of the agent that was downloaded has another SHA-512 than the assignment says: "+
			"if a proxy is between this host and the config server, clear its cache", offer.Version)
	}
	if err := a.Program.Replace(ctx, contents); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.Log.Error("the offered program does not work on this host", "version", offer.Version, "error", err)
		return a.refuseProgram(want, err.Error())
	}
	a.Log.Info("the program was replaced", "from", version, "to", offer.Version)
	return ErrReplaced
}

// refuseProgram records that a program is not tried again.
func (a *Agent) refuseProgram(sum, why string) error {
	_, err := a.enter(a.journal.Phase, func(j *journal) { j.RefusedProgram = &failure{sum, shorten(why, 1<<10)} })
	return err
}

// whyNotReplace returns why a running version is not replaced by an offered one, "" if it is.
func whyNotReplace(running string, offer *assignment.Agent) string {
	for _, version := range []string{offer.Version, offer.Oldest} {
		if !semver.IsValid(version) {
			return fmt.Sprintf("%q is not a version such as v0.1.0", version)
		}
	}
	if semver.Compare(offer.Version, offer.Oldest) < 0 {
		return fmt.Sprintf("version %s is older than %s, the oldest one that hosts may run", offer.Version, offer.Oldest)
	}
	if semver.Compare(offer.Version, running) < 0 { // a running version that is not valid is older than all others
		return fmt.Sprintf("version %s is older than %s, which runs", offer.Version, running)
	}
	return ""
}
