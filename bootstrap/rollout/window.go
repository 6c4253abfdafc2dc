package rollout

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images and workstations can lack the database

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Window is the maintenance window of a pool. A nil window is always open.
//
// When the clocks of its time zone change, it behaves as a CronJob: a window that starts at a time that is skipped does
// not open on that day, and one that starts at a time that occurs twice opens both times. The duration is that of a
// stopwatch.
type Window struct {
	schedule cron.Schedule
	duration time.Duration
	location *time.Location
}

// ParseWindow reads the maintenance window at a path. It returns nil if the pool has none. Errors name the field and
// the remedy.
func ParseWindow(w poolv1.MaintenanceWindow, path *field.Path) (*Window, field.ErrorList) {
	if w == (poolv1.MaintenanceWindow{}) {
		return nil, nil
	}
	var errs field.ErrorList
	location, err := time.LoadLocation(w.TimeZone) // "" is UTC
	if err != nil || w.TimeZone == time.Local.String() {
		errs = append(errs, field.Invalid(path.Child("timeZone"), w.TimeZone, "it must be a name of the time zone database, such as Europe/Berlin or Etc/UTC"))
		location = time.UTC
	}
	schedule, why := parseSchedule(w.Schedule, location)
	if why != "" {
		errs = append(errs, field.Invalid(path.Child("schedule"), w.Schedule, why))
	}
	if w.DurationMinutes < 1 {
		errs = append(errs, field.Invalid(path.Child("durationMinutes"), w.DurationMinutes, "it must be at least 1"))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &Window{schedule, time.Duration(w.DurationMinutes) * time.Minute, location}, nil
}

// parseSchedule returns the schedule, or why it can't be used. The format is that of a CronJob of Kubernetes.
func parseSchedule(text string, location *time.Location) (schedule cron.Schedule, why string) {
	const example = `such as "0 22 * * 6" for Saturdays at 22:00`
	switch {
	case strings.Contains(text, "TZ"): // the library reads it
		return nil, "it can't contain a time zone: set timeZone"
	case strings.HasPrefix(strings.TrimSpace(text), "@every"): // it has no fixed times
		return nil, "it must have fixed times, " + example
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return nil, fmt.Sprintf("it must be a schedule in the format of cron, %s: %s", example, err)
	}
	if schedule.Next(time.Date(2024, time.January, 1, 0, 0, 0, 0, location)).IsZero() {
		return nil, "there is no such date"
	}
	return schedule, ""
}

// never is far in the future.
const never = 100 * 365 * 24 * time.Hour

// Opens returns when hosts can begin updates: now if the window is open, or its next start.
func (w *Window) Opens(now time.Time) time.Time {
	if w == nil {
		return now
	}
	// The first start that has not ended.
	start := w.schedule.Next(now.Add(-w.duration).In(w.location))
	switch {
	case start.IsZero():
		return now.Add(never)
	case start.After(now):
		return start
	}
	return now
}
