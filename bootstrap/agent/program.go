package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

// replaceProgram replaces the program of the agent if the manager offers another one. It returns ErrReplaced if it did.
func (a *Agent) replaceProgram(ctx context.Context, offer *assignment.Agent) error {
	want := a.offeredProgram(offer)
	if want == "" {
		return nil
	}
	version := a.version()
	if why := whyNotReplace(version, offer); why != "" {
		a.Log.Warn("the offered program is not used", "version", offer.Version, "reason", why)
		return a.refuseProgram(want, why)
	}
	if a.tried.sum != want {
		a.tried = programTry{sum: want}
	}
	if a.Clock.Uptime() < a.tried.next {
		return a.tried.err
	}
	contents, err := a.downloadProgram(ctx, offer.Version, want)
	a.tried.err = err
	if err == nil {
		a.store.unstage() // another program can read more of the configuration
		err = a.Program.Replace(ctx, contents)
	}
	switch {
	case err == nil:
		a.Log.Info("the program was replaced", "from", version, "to", offer.Version)
		return ErrReplaced
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrUnusable):
		a.tried.unusable++
	}
	if a.tried.unusable >= maxProgramTries {
		a.Log.Error("the offered program does not work on this host, and is not tried again", "version", offer.Version, "error", err)
		return a.refuseProgram(want, err.Error())
	}
	wait := min(lastProgramTry, firstProgramTry<<min(a.tried.failures, 10))
	a.tried.failures, a.tried.next = a.tried.failures+1, a.Clock.Uptime()+wait
	a.Log.Error("the offered program did not replace this one, and is tried again", "version", offer.Version, "after", wait.String(), "error", err)
	return a.tried.err // updates do not wait for a program that was downloaded
}

// offeredProgram returns the hash of a program that is offered instead of the running one and was not refused, or "".
func (a *Agent) offeredProgram(offer *assignment.Agent) string {
	if a.Program == nil || offer == nil {
		return ""
	}
	_, sum, architecture := a.Program.Running()
	want := strings.ToLower(offer.SHA512[architecture])
	if want == sum || a.journal.RefusedProgram != nil && a.journal.RefusedProgram.Of == want {
		return ""
	}
	return want
}

func (a *Agent) version() string {
	version, _, _ := a.Program.Running()
	return version
}

// programTry is the last try to replace the program that failed. It is tried again, after a time that grows: programs
// are large, their check needs the API server, and the host can have a full disk. One that does not work again and
// again is refused for good.
type programTry struct {
	sum string
	// failures counts the tries, and unusable those in which the program did not work on this host.
	failures, unusable int
	// err is set if it could not be downloaded.
	err error
	// next is the uptime from which it is tried again.
	next time.Duration
}

// downloadProgram returns a program that was staged, or downloads and verifies it.
func (a *Agent) downloadProgram(ctx context.Context, version, want string) ([]byte, error) {
	if stored, err := a.store.root.ReadFile(a.store.contentsPath(want)); err == nil && hasSHA512(stored, want) {
		return stored, nil
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	contents, err := a.Source.Program(limited, want)
	switch {
	case err != nil:
		return nil, fmt.Errorf("download version %s of the agent: %w", version, err)
	case !hasSHA512(contents, want):
		return nil, fmt.Errorf("version %s of the agent that was downloaded has another SHA-512 than the assignment says: "+
			"if a proxy is between this host and the config server, clear its cache", version)
	}
	return contents, nil
}

// refuseProgram records that a program is not tried again.
func (a *Agent) refuseProgram(sum, why string) error {
	_, err := a.enter(a.journal.Phase, func(j *journal) { j.RefusedProgram = &failure{Of: sum, Why: shorten(why, 1<<10)} })
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
