package rollout

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// StagingPatience is how long a host may take to download what its next update needs, or to report why it can't, before
// others do not wait for that any more.
const StagingPatience = time.Hour

// HasStaged reports whether the host has everything that an update to a revision needs, or has an agent that says
// nothing about that, as earlier ones.
func (h *Host) HasStaged(revision string) bool {
	r := &h.Report
	return r.Staging == "" || r.Current == revision || r.Staging == revision && r.StagingProblem == ""
}

// WhyNotStaged returns why the host can't download what an update to a revision needs, or "".
func (h *Host) WhyNotStaged(revision string) string {
	if h.Report.Staging == revision {
		return h.Report.StagingProblem
	}
	return ""
}

// WithStaging returns the candidate with whether the host must stage its target before it is chosen. Hosts that are
// unavailable are not chosen, and those that are in an update get their target at once.
func (c Candidate) WithStaging(h *Host) Candidate {
	isWaiting := !c.HasSlot && !c.IsExcluded && !c.IsActive() && c.Desired != c.Target
	c.IsStaging = isWaiting && !h.HasStaged(c.Target)
	c.IsStagingFailed = c.IsStaging && h.WhyNotStaged(c.Target) != ""
	return c
}

// StagingOf returns the entry of a host by the name of its PoolbootConfig, or nil.
func StagingOf(staging []poolv1.StagingHost, host string) *poolv1.StagingHost {
	if i := slices.IndexFunc(staging, func(s poolv1.StagingHost) bool { return s.Host == host }); i >= 0 {
		return &staging[i]
	}
	return nil
}

// Stage returns the hosts of a pool that stage their targets: those that have begun and have not answered, and the next
// ones in the order of the rollout, up to a limit. A host that has reported why it can't tries again by itself, and
// makes room for another one. So does a host that has not answered for too long, which is chosen without having staged.
// It returns in which time that is so for another host, 0 if for none.
func Stage(known []poolv1.StagingHost, hosts []Candidate, limit int, now time.Time) (staging []poolv1.StagingHost, again time.Duration) {
	entryOf := make(map[string]*poolv1.StagingHost, len(known))
	for i := range known {
		entryOf[known[i].Host] = &known[i]
	}
	var waiting []*Candidate
	for i := range hosts {
		h := &hosts[i]
		entry := entryOf[h.Name]
		switch {
		case !h.IsStaging, h.IsStagingFailed:
		case entry == nil || entry.Revision != h.Target || entry.StartTime == nil || entry.StartTime.After(now.Add(MaxSkew)):
			waiting = append(waiting, h)
		default:
			staging = append(staging, *entry)
			left := StagingPatience - now.Sub(entry.StartTime.Time)
			if left <= 0 {
				h.IsStaging = false
				continue
			}
			limit--
			if again == 0 || left < again {
				again = left
			}
		}
	}
	slices.SortFunc(waiting, inOrder)
	for _, h := range waiting[:min(len(waiting), max(limit, 0))] {
		staging = append(staging, poolv1.StagingHost{Host: h.Name, Revision: h.Target, StartTime: &metav1.Time{Time: now}})
		if again == 0 {
			again = StagingPatience
		}
	}
	slices.SortFunc(staging, func(a, b poolv1.StagingHost) int { return cmp.Compare(a.Host, b.Host) })
	return staging[:min(len(staging), MaxSlots)], again
}
