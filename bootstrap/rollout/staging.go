package rollout

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// StagingPatience is how long a host may take to download what its next update needs, or to report why it can't, before
// it makes room for another host.
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
// unavailable are not chosen, those that are skipped take no place of others, and those that are in an update get their
// target at once.
func (c Candidate) WithStaging(h *Host) Candidate {
	isWaiting := !c.HasSlot && !c.IsExcluded && !c.IsSkipped && !c.IsActive() && c.Desired != c.Target
	c.IsStaging = isWaiting && !h.HasStaged(c.Target)
	c.IsStagingFailed = c.IsStaging && h.WhyNotStaged(c.Target) != ""
	return c
}

// StagingOf returns the entry of a host by the name of its PoolbootConfig, or nil. Stage sorts the entries.
func StagingOf(staging []poolv1.StagingHost, host string) *poolv1.StagingHost {
	if i, has := slices.BinarySearchFunc(staging, host, func(s poolv1.StagingHost, host string) int { return cmp.Compare(s.Host, host) }); has {
		return &staging[i]
	}
	return nil
}

// StagingLeft returns how long a host may still hold a place to stage what an entry says. It is negative for a host
// that holds none any more.
func StagingLeft(entry *poolv1.StagingHost, now time.Time) time.Duration {
	return StagingPatience - now.Sub(entry.StartTime.Time)
}

// Stage returns the hosts of a pool that stage their targets: those that have begun and have not answered, and the next
// ones in the order of the rollout, up to a limit. A host that has reported why it can't tries again by itself, and
// makes room for another one. So does a host that has not answered for too long. Neither is chosen before it has
// staged, and neither gets more time for the same target. It returns in which time another host has none left, 0 if
// none has.
func Stage(known []poolv1.StagingHost, hosts []Candidate, limit int, now time.Time) (staging []poolv1.StagingHost, again time.Duration) {
	entryOf := make(map[string]*poolv1.StagingHost, len(known))
	for i := range known {
		entryOf[known[i].Host] = &known[i]
	}
	var waiting []*Candidate
	var placeless []poolv1.StagingHost
	for i := range hosts {
		h := &hosts[i]
		entry := entryOf[h.Name]
		isKnown := entry != nil && entry.Revision == h.Target && entry.StartTime != nil && !entry.StartTime.After(now.Add(MaxSkew))
		switch {
		case !h.IsStaging:
		case isKnown && (h.IsStagingFailed || StagingLeft(entry, now) <= 0):
			placeless = append(placeless, *entry)
		case isKnown:
			staging = append(staging, *entry)
			again = min(cmp.Or(again, StagingPatience), StagingLeft(entry, now))
		case !h.IsStagingFailed:
			waiting = append(waiting, h)
		}
	}
	slices.SortFunc(waiting, inOrder)
	for _, h := range waiting[:min(len(waiting), max(limit-len(staging), 0))] {
		staging = append(staging, poolv1.StagingHost{Host: h.Name, Revision: h.Target, StartTime: &metav1.Time{Time: now}})
		again = cmp.Or(again, StagingPatience)
	}
	staging = append(staging, placeless...)
	staging = staging[:min(len(staging), MaxSlots)]
	slices.SortFunc(staging, func(a, b poolv1.StagingHost) int { return cmp.Compare(a.Host, b.Host) })
	return staging, again
}
