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
	if a.tried.sum == want && a.Clock.Uptime() < a.tried.next {
		return nil
	}
	contents, err := a.downloadProgram(ctx, offer.Version, want)
	if err != nil {
		return err
	}
	if err := a.Program.Replace(ctx, contents); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return a.failProgram(want, offer.Version, err)
	}
	a.Log.Info("the program was replaced", "from", version, "to", offer.Version)
	return ErrReplaced
}

// programTry is the last try to replace the program that failed.
type programTry struct {
	sum      string
	failures int
	// next is the uptime from which it is tried again.
	next time.Duration
}

// failProgram records that a program did not replace the running one. It is tried again: its check needs the API
// server, and the host can have a full disk. One that does not work again and again is refused for good. Updates do not
// wait.
func (a *Agent) failProgram(sum, version string, err error) error {
	if a.tried.sum != sum {
		a.tried = programTry{sum: sum}
	}
	if a.tried.failures++; errors.Is(err, ErrUnusable) && a.tried.failures >= maxProgramTries {
		a.Log.Error("the offered program does not work on this host, and is not tried again", "version", version, "error", err)
		return a.refuseProgram(sum, err.Error())
	}
	wait := min(lastDownloadRetry, firstDownloadRetry<<min(a.tried.failures-1, 10))
	a.tried.next = a.Clock.Uptime() + wait
	a.Log.Error("the offered program did not replace this one, and is tried again", "version", version, "after", wait.String(), "error", err)
	return nil
}

// programDownload is the last download of a program that failed.
type programDownload struct {
	sum      string
	err      error
	failures int
	// next is the uptime from which it is tried again.
	next time.Duration
}

// downloadProgram downloads a program and verifies it. After a failure, it returns the same error without a download
// until some time has passed, which grows: programs are large, and a step of the agent is taken whenever the Node
// changes.
func (a *Agent) downloadProgram(ctx context.Context, version, want string) ([]byte, error) {
	last := a.download
	if last.sum == want && a.Clock.Uptime() < last.next {
		return nil, last.err
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	contents, err := a.source.Program(limited, want)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		err = fmt.Errorf("download version %s of the agent: %w", version, err)
	case !hasSHA512(contents, want):
		err = fmt.Errorf("version %s of the agent that was downloaded has another SHA-512 than the assignment says: "+
			"if a proxy is between this host and the config server, clear its cache", version)
	default:
		a.download = programDownload{}
		return contents, nil
	}
	if last.sum != want {
		last.failures = 0
	}
	wait := min(lastDownloadRetry, firstDownloadRetry<<min(last.failures, 10))
	a.download = programDownload{sum: want, err: err, failures: last.failures + 1, next: a.Clock.Uptime() + wait}
	return nil, err
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
