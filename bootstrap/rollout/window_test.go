package rollout_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var windowPath = field.NewPath("spec", "updates", "maintenanceWindow")

func timeOf(text string) time.Time {
	GinkgoHelper()
	t, err := time.Parse(time.RFC3339, text)
	Expect(err).NotTo(HaveOccurred())
	return t
}

var _ = DescribeTable("Hosts can begin updates", func(schedule string, minutes int32, zone, now, opens string) {
	window, errs := rollout.ParseWindow(poolv1.MaintenanceWindow{Schedule: schedule, DurationMinutes: minutes, TimeZone: zone}, windowPath)
	Expect(errs).To(BeEmpty())
	Expect(window.Opens(timeOf(now))).To(BeTemporally("==", timeOf(opens)))
},
	// 2026-11-21 is a Saturday.
	Entry("when the window opens", "0 22 * * 6", int32(240), "", "2026-11-20T12:00:00Z", "2026-11-21T22:00:00Z"),
	Entry("at the first moment", "0 22 * * 6", int32(240), "", "2026-11-21T22:00:00Z", "2026-11-21T22:00:00Z"),
	Entry("in the window, also on the next day", "0 22 * * 6", int32(240), "", "2026-11-22T01:59:59Z", "2026-11-22T01:59:59Z"),
	Entry("a week later from the moment at which the window closes", "0 22 * * 6", int32(240), "", "2026-11-22T02:00:00Z", "2026-11-28T22:00:00Z"),
	Entry("at the hours of a time zone", "0 22 * * 6", int32(240), "Europe/Berlin", "2026-11-21T20:59:59Z", "2026-11-21T21:00:00Z"),
	Entry("at the same local time in summer", "0 22 * * 6", int32(240), "Europe/Berlin", "2026-07-18T19:59:59Z", "2026-07-18T20:00:00Z"),
	// Berlin's clocks change from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25.
	Entry("not in a window that starts in the skipped hour, but at the next one", "30 2 * * *", int32(60), "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"),
	Entry("a week later if such a window is weekly", "0 2 * * 0", int32(240), "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-04-05T00:00:00Z"),
	Entry("in a window that starts before the skipped hour, for its whole duration", "0 1 * * 0", int32(120), "Europe/Berlin", "2026-03-29T01:59:59Z", "2026-03-29T01:59:59Z"),
	Entry("not after that duration, although the clock shows an hour more", "0 1 * * 0", int32(120), "Europe/Berlin", "2026-03-29T02:00:00Z", "2026-04-04T23:00:00Z"),
	Entry("in a window that starts in the doubled hour, the first time", "30 2 * * *", int32(20), "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
	Entry("and the second time", "30 2 * * *", int32(20), "Europe/Berlin", "2026-10-25T00:50:00Z", "2026-10-25T01:30:00Z"),
	Entry("without a break if the window is as long as the difference", "30 2 * * *", int32(60), "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:30:00Z"),
	Entry("until the second window closes", "30 2 * * *", int32(60), "Europe/Berlin", "2026-10-25T02:30:00Z", "2026-10-26T01:30:00Z"),
	Entry("for the whole duration of a window that starts before the doubled hour", "0 1 * * 0", int32(120), "Europe/Berlin", "2026-10-25T01:00:00Z", "2026-11-01T00:00:00Z"),
	Entry("at any time if windows touch", "0 * * * *", int32(60), "", "2026-11-21T10:59:59.5Z", "2026-11-21T10:59:59.5Z"),
	Entry("at any time if windows overlap", "*/5 * * * *", int32(60), "", "2026-11-21T10:59:59Z", "2026-11-21T10:59:59Z"),
	Entry("by a name", "@weekly", int32(60), "Etc/UTC", "2026-11-21T10:59:59Z", "2026-11-22T00:00:00Z"),
)

var _ = It("Hosts of a pool without a window can begin updates at any time", func() {
	window, errs := rollout.ParseWindow(poolv1.MaintenanceWindow{}, windowPath)
	Expect(errs).To(BeEmpty())
	now := time.Now()
	Expect(window.Opens(now)).To(Equal(now))
})

var _ = DescribeTable("A window is refused with", func(schedule string, minutes int32, zone, at, why string) {
	_, errs := rollout.ParseWindow(poolv1.MaintenanceWindow{Schedule: schedule, DurationMinutes: minutes, TimeZone: zone}, windowPath)
	Expect(errs).To(ConsistOf(And(HaveField("Field", "spec.updates.maintenanceWindow."+at), HaveField("Detail", ContainSubstring(why)))))
},
	Entry("no schedule", "", int32(60), "", "schedule", `such as "0 22 * * 6"`),
	Entry("a schedule of four fields", "0 22 * *", int32(60), "", "schedule", "expected exactly 5 fields"),
	Entry("an hour that does not exist", "0 24 * * 6", int32(60), "", "schedule", "above maximum"),
	Entry("a date that does not exist", "0 0 30 2 *", int32(60), "", "schedule", "there is no such date"),
	Entry("a time zone in the schedule", "CRON_TZ=Europe/Berlin 0 22 * * 6", int32(60), "", "schedule", "set timeZone"),
	Entry("a time zone without a schedule, at which the library fails", "TZ=", int32(60), "", "schedule", "set timeZone"),
	Entry("an interval without a fixed time", "@every 1h", int32(60), "", "schedule", "fixed times"),
	Entry("a time zone that does not exist", "0 22 * * 6", int32(60), "Berlin", "timeZone", "Europe/Berlin"),
	Entry("the time zone of the manager's Pod", "0 22 * * 6", int32(60), "Local", "timeZone", "Europe/Berlin"),
	Entry("a path as the time zone", "0 22 * * 6", int32(60), "../../etc/passwd", "timeZone", "Europe/Berlin"),
	Entry("no duration", "0 22 * * 6", int32(0), "", "durationMinutes", "at least 1"),
)

func FuzzParse(f *testing.F) {
	for _, schedule := range []string{"0 22 * * 6", "@weekly", "TZ=", "*/5 1-3 ? jan sun", "0 0 30 2 *"} {
		f.Add(schedule, int32(60), "Europe/Berlin", int64(1700000000))
	}
	f.Fuzz(func(t *testing.T, schedule string, minutes int32, zone string, seconds int64) {
		window, errs := rollout.ParseWindow(poolv1.MaintenanceWindow{Schedule: schedule, DurationMinutes: minutes % (7 * 24 * 60), TimeZone: zone}, windowPath)
		if len(errs) > 0 || window == nil {
			return
		}
		now := time.Unix(seconds%(1<<32), 0)
		opens := window.Opens(now)
		if opens.Before(now) {
			t.Fatalf("it opened before now: %s, %s", opens, now)
		}
		if again := window.Opens(opens); !again.Equal(opens) {
			t.Fatalf("it is not open when it opens: %s, %s", opens, again)
		}
	})
}
