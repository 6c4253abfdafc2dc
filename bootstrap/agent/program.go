package agent

import (
	"context"
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
	contents, err := a.downloadProgram(ctx, offer.Version, want)
	if err != nil {
		return err
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
