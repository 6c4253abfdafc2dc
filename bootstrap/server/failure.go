package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

const (
	// maxReport is the maximum size of a report, in bytes. It is also the maximum length of the log in the status.
	maxReport = 4 << 10
	// reportInterval is the minimum time between two reports of one host that are recorded.
	reportInterval = time.Minute
)

// IgnitionFailure is a failure of Ignition that a host reports.
type IgnitionFailure struct {
	// Stage is the stage that failed, such as fetch or files.
	Stage string
	// Log is the end of Ignition's log. It is empty if the host sent none.
	Log string
}

var stagePattern = regexp.MustCompile(`^[a-z][-a-z]{0,31}$`)

// secrets are patterns of what must not be in a status, although a host must not send it: Ignition does not log the
// contents of files, but can log a URL, and what a command printed.
var secrets = regexp.MustCompile(strings.Join([]string{
	keyBegin + `(?s:.*?)(` + keyEnd + `|$)`,
	`data:[^\s"]*`,
	`(?i)\bauthorization\b["']?\s*[:=].*`,
	`(?i)\b(bearer|basic)\s+[^\s"]+`,
	`(?i)[-\w]*(token|password|passwd|passphrase|secret|credential|api_?key|access_?key)[-\w]*[\\"']*\s*[:=]\s*\\*("[^"]*"?|'[^']*'?|[^\s"']+)`,
	`\?[-\w.~%+]+=[^\s"']+`, // the query of a URL, which can have a signature
	`://[^/\s"@]*@`,
	`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`,
	`\$(1|2[abxy]?|5|6|7|y|gy)\$[^\s":]+`,
}, "|"))

const (
	keyBegin = `-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----`
	keyEnd   = `-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----`
)

var (
	keyBeginPattern = regexp.MustCompile(keyBegin)
	keyEndPattern   = regexp.MustCompile(keyEnd)
)

// minTokenPart is the minimum length of a part of the token that is replaced.
const minTokenPart = 8

// redacted replaces a secret.
const redacted = "(redacted)"

// acceptReport records the failure that a host reports with the token and the URL of its configuration.
func (v *view) acceptReport(ctx context.Context, w http.ResponseWriter, r *http.Request, record *Record, target route, token string) error {
	v.recordAddress(ctx, record, target.from)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return newRefusal(http.StatusRequestEntityTooLarge, "ReportTooLarge", "a report has at most %d bytes: send the end of the log", maxReport)
	}
	if err != nil {
		return err // the connection is closed
	}
	failure, err := parseReport(string(body), token)
	if err != nil {
		return newRefusal(http.StatusBadRequest, "BadReport", "%v", err)
	}
	ok, err := v.recording.recordFailure(ctx, *record, failure)
	if err != nil {
		v.opts.Metrics.recordErrors.Inc()
		return unavailable(fmt.Errorf("recording the failure of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	if !ok {
		return newRefusal(http.StatusTooManyRequests, "TooManyReports", "a report of this host was already recorded in the last minute: send the next report later")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// parseReport parses a report: the first line is the stage, and the other lines are the log. The log of the result
// contains only printable text, and neither the token nor anything else that looks like a secret.
func parseReport(body, token string) (IgnitionFailure, error) {
	stage, log, _ := strings.Cut(body, "\n")
	stage = strings.TrimSpace(stage)
	if !stagePattern.MatchString(stage) {
		return IgnitionFailure{}, errors.New("the first line must be the stage of Ignition that failed, such as fetch, disks or files")
	}
	return IgnitionFailure{Stage: stage, Log: lastRunes(strings.TrimSpace(redact(excerpt.Printable(log), token)), maxReport)}, nil
}

// redact replaces the token, and what looks like another secret. The log is the end of a longer one, so the beginning
// of the token or of a private key can be missing.
func redact(log, token string) string {
	log = strings.ReplaceAll(log, token, redacted)
	for i := 1; i+minTokenPart <= len(token); i++ {
		if rest, ok := strings.CutPrefix(log, token[i:]); ok {
			log = redacted + rest
			break
		}
	}
	if end := keyEndPattern.FindStringIndex(log); end != nil && !keyBeginPattern.MatchString(log[:end[0]]) {
		log = redacted + log[end[1]:]
	}
	return secrets.ReplaceAllString(log, redacted)
}

// lastRunes returns the end of a text with at most n bytes.
func lastRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	text = text[len(text)-n:]
	for !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return text
}

// recordFailure records a failure, and returns false if one of this host was recorded moments ago.
func (r *recording) recordFailure(ctx context.Context, record Record, failure IgnitionFailure) (bool, error) {
	now := r.now()
	recent := func(at time.Time) bool { return now.Sub(at).Abs() < reportInterval }
	if recent(record.FailedTime) || !r.claimWrite(r.failed, record.UID, now, func(last any) bool { return recent(last.(time.Time)) }) {
		return false, nil
	}
	err := r.write(ctx, func(ctx context.Context) error { return r.boots.RecordFailure(ctx, record, failure, now) })
	if err != nil {
		r.failed.Remove(record.UID)
	}
	return err == nil, err
}
