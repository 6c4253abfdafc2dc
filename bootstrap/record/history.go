package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

const (
	// maxRecord is the maximum size of a history in an annotation that is read, in bytes. One that is written has less.
	maxRecord = 16 << 10
	// maxRecordMessage is the maximum size of a message in it.
	maxRecordMessage = 256
	// maxStageSeconds is the maximum time in a stage that is read: a year.
	maxStageSeconds = 365 * 24 * 60 * 60
)

// EncodeUpdates returns the value of the annotation UpdateHistoryAnnotation for the history of a host, or "" if no
// update in it has ended.
func EncodeUpdates(history []bootstrapv1.HostUpdate) string {
	var ended []bootstrapv1.HostUpdate
	for _, u := range history {
		if u.CompletionTime != nil {
			u.Message = excerpt.Line(u.Message, maxRecordMessage)
			ended = append(ended, u)
		}
	}
	if len(ended) == 0 {
		return ""
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(ended); err != nil {
		return ""
	}
	return strings.TrimSpace(text.String())
}

// DecodeUpdates returns the history of a host from the annotation. Whoever wrote it, the result is one that the API
// server accepts: entries that are not valid are left out.
func DecodeUpdates(value string) (history []bootstrapv1.HostUpdate) {
	var read []bootstrapv1.HostUpdate
	if value == "" || len(value) > maxRecord || json.Unmarshal([]byte(value), &read) != nil {
		return nil
	}
	for _, u := range read {
		u.Message = excerpt.Line(u.Message, maxRecordMessage)
		for _, t := range []*metav1.Time{u.StartTime, u.CompletionTime} {
			if t != nil {
				t.Time = t.Truncate(time.Second)
			}
		}
		if isValidUpdate(&u) {
			history = append(history, u)
		}
	}
	return history[max(0, len(history)-bootstrapv1.MaxUpdateHistory):]
}

var (
	results = sets.New(bootstrapv1.UpdateResultDone, bootstrapv1.UpdateResultDegraded, bootstrapv1.UpdateResultUnreconcilable, bootstrapv1.UpdateResultSuperseded,
		bootstrapv1.UpdateResultUnitsFailing)
	effects = sets.New[bootstrapv1.UpdateEffect]("", "None", "Reload", "Restart", "Reboot")
	stages  = sets.New(bootstrapv1.UpdateStarting, bootstrapv1.UpdateDraining, bootstrapv1.UpdateApplying, bootstrapv1.UpdateRebooting, bootstrapv1.UpdateVerifying)
)

// isValidUpdate reports whether the API server accepts an update that has ended.
func isValidUpdate(u *bootstrapv1.HostUpdate) bool {
	seen := sets.New[bootstrapv1.UpdateStage]()
	for _, s := range u.Stages {
		if !stages.Has(s.Stage) || seen.Has(s.Stage) || s.Seconds < 1 || s.Seconds > maxStageSeconds {
			return false
		}
		seen.Insert(s.Stage)
	}
	return len(validation.IsDNS1123Subdomain(u.Configuration)) == 0 && isTime(u.StartTime) && isTime(u.CompletionTime) && results.Has(u.Result) && effects.Has(u.Effect)
}

// isTime reports whether a time is one that can be written again: with a year of four digits in any time zone.
func isTime(t *metav1.Time) bool {
	return t != nil && t.UTC().Year() >= 2000 && t.UTC().Year() < 9999
}

// EncodeHandedOut returns the value of the annotation HandedOutAnnotation for the history of a pool.
func EncodeHandedOut(p *poolv1.MachineConfigPool) string {
	var entries []string
	for _, h := range p.Status.History {
		if rest, ok := strings.CutPrefix(h.Name, renderedPrefix(p)); ok && h.StartTime != nil {
			entries = append(entries, rest+"="+h.StartTime.UTC().Format(time.RFC3339))
		}
	}
	return strings.Join(entries, ",")
}

// DecodeHandedOut returns the history of a pool from the annotation, without changes. Whoever wrote it, the result is
// one that the API server accepts: entries that are not valid are left out.
func DecodeHandedOut(p *poolv1.MachineConfigPool) (history []poolv1.HandedOutConfiguration) {
	value := p.Annotations[poolv1.HandedOutAnnotation]
	if len(value) > maxRecord {
		return nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		rest, at, _ := strings.Cut(entry, "=")
		parsed, err := time.Parse(time.RFC3339, at)
		start, name := metav1.NewTime(parsed.UTC().Truncate(time.Second)), renderedPrefix(p)+rest
		if rest != "" && err == nil && isTime(&start) && len(validation.IsDNS1123Subdomain(name)) == 0 {
			history = append(history, poolv1.HandedOutConfiguration{Name: name, StartTime: &start})
		}
	}
	return history[max(0, len(history)-poolv1.MaxHistory):]
}

func renderedPrefix(p *poolv1.MachineConfigPool) string {
	return poolv1.RenderedNamePrefix + p.Name + "-"
}
