package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Progress is how far a host is with the revision that it is told to have.
type Progress int

const (
	// Done means that the host has the revision, or was never told to have one.
	Done Progress = iota
	// InUpdate means that the host reports that it is working on the revision.
	InUpdate
	// Unknown means that the host reports nothing about the revision. It was just told, or does not answer, or its Node
	// registered again and lost what it reported.
	Unknown
	// Failed means that the host reported that it can't have the revision, and runs its previous one.
	Failed
)

// Candidate is a host of a pool.
type Candidate struct {
	// Name identifies the host within the pool.
	Name string
	// Domain is the failure domain of its Node, or "". Hosts of one domain are updated at a time. In a pool without
	// failure domains, all hosts are in "".
	Domain string
	// Zone is the zone of its Node, or "".
	Zone string
	// CreationTime is that of its Node.
	CreationTime time.Time
	// Desired is the revision that the host has or is to have next: that of its slot, or what it was told. Target is
	// the revision that it should have according to its pool.
	Desired, Target string
	// HasSlot is true if the host has a slot of the pool.
	HasSlot bool
	// Progress is how far the host is with the revision that it was told to have.
	Progress Progress
	// IsUnavailable is true if the host is unavailable for any reason other than Progress: its Node does not exist, is
	// not Ready or is cordoned, or Cluster API deletes, remediates or updates its Machine.
	IsUnavailable bool
	// IsExcluded is true for a host that is never chosen, such as one that runs no agent. It counts like any other.
	IsExcluded bool
	// IsHeld is true for a host that can't begin an update now because of a pause, a missing approval, the maintenance
	// window or an exception. It is chosen by no limit, so others are in its place.
	IsHeld bool
	// IsSkipped is true for a host that an exception skips, and that has begun no update. Others do not wait for it: it
	// stages nothing, is no canary, and counts only while it is unavailable, and not because its last update failed.
	IsSkipped bool
	// IsStaging is true for a host that must download what its Target needs before it is chosen, and IsStagingFailed if
	// it has reported why it can't.
	IsStaging, IsStagingFailed bool
	// HasBegun is true for a host that closed gates and canaries do not hold back: it is in an update and gets a newer
	// target, or was told to begin one and has not answered, or returns to what it has. One that repairs what it has is
	// in no update.
	HasBegun bool
	// IsCanary is true for a host that the nodeSelector of the pool's canary selects. CompletedTime is since when it
	// has its Target, its Node is Ready and its units work, or zero if that is not so.
	IsCanary      bool
	CompletedTime time.Time
	// IsLast is true for a host that is chosen only after all others, because its Machine is about to be replaced.
	IsLast bool
}

// IsActive reports whether the host is unavailable, or can be at any time because of its update.
func (h *Candidate) IsActive() bool {
	return h.IsUnavailable || h.Progress == InUpdate || h.Progress == Unknown
}

// TakesPlace reports whether the host counts against maxUnavailable: it is unavailable or in an update, or its last
// update failed and it is not skipped.
func (h *Candidate) TakesPlace() bool { return h.IsActive() || h.Progress == Failed && !h.IsSkipped }

// DefaultMaxUnavailable is the number of hosts if a pool has no maxUnavailable.
const DefaultMaxUnavailable = 1

// MaxUnavailable returns how many of a number of hosts can be unavailable. Percentages are rounded down, and 0 is 1, so
// that a rollout never stops because a pool is small. The error is that of a value which is negative,
// or neither a number nor a percentage.
func MaxUnavailable(value *intstr.IntOrString, hosts int) (int, error) {
	if value == nil {
		return DefaultMaxUnavailable, nil
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(value, hosts, false)
	if err != nil || number < 0 {
		remedy := "set a number of at least 1"
		if quoted, err := strconv.Atoi(value.StrVal); err == nil && quoted > 0 {
			remedy = "remove the quotes"
		}
		return 0, fmt.Errorf("maxUnavailable: is %q: %s, or set a percentage such as \"10%%\"", value.String(), remedy)
	}
	return max(number, 1), nil
}

// Count returns how many hosts count against maxUnavailable.
func Count(hosts []Candidate) (count int) {
	for i := range hosts {
		if hosts[i].TakesPlace() {
			count++
		}
	}
	return count
}

// Next returns the names of the hosts that should get a slot for their Target now, where it differs from Desired.
//
//   - A host in an update gets its Target at once, whatever the others do: it counts already, and the new revision may
//     be the one that helps it. The agent ends what it can't interrupt first.
//   - A host that reports nothing gets it if no more hosts are unavailable or in an update than allowed.
//   - A host whose last update failed gets it as soon as that number allows another host.
//   - Any other host gets it only if the hosts whose last update failed leave room for it as well. So a revision that
//     fails stops at maxUnavailable hosts.
//
// Hosts that are held get nothing. Other hosts that are unavailable get nothing: something else is going on there.
// Hosts are chosen in the order of their failure domains, within these of their zones, and within a zone the oldest
// first. Those without a domain or a zone are last, and those with IsLast after all others. A host that is not in an
// update yet is chosen only if all that count are in its domain, and if it is not IsStaging.
func Next(hosts []Candidate, maxUnavailable int) (chosen []string) {
	var active, stopped int
	var unknown []string
	var failed, waiting []*Candidate
	unavailable, counted := domains{}, domains{}
	for i := range hosts {
		h := &hosts[i]
		isWanted := h.Desired != h.Target && !h.IsExcluded && !h.IsHeld
		switch {
		case h.IsActive():
			active++
			unavailable[h.Domain], counted[h.Domain] = true, true
			switch {
			case !isWanted:
			case h.Progress == InUpdate:
				chosen = append(chosen, h.Name)
			case h.Progress == Unknown:
				unknown = append(unknown, h.Name)
			}
		case h.IsSkipped:
		case h.Progress == Failed:
			stopped++
			counted[h.Domain] = true
			if isWanted && !h.IsStaging {
				failed = append(failed, h)
			}
		case isWanted && !h.IsStaging:
			waiting = append(waiting, h)
		}
	}
	if active <= maxUnavailable {
		chosen = append(chosen, unknown...)
	}
	slices.Sort(chosen)
	chosen = append(chosen, first(failed, unavailable, maxUnavailable-active)...)
	return append(chosen, first(waiting, counted, maxUnavailable-active-stopped)...)
}

// domains are failure domains.
type domains map[string]bool

// first returns the names of the first hosts in the order of a rollout, of one domain: the only busy one, or that of
// the very first host if none is.
func first(hosts []*Candidate, busy domains, number int) (names []string) {
	if number <= 0 {
		return nil
	}
	slices.SortFunc(hosts, inOrder)
	for _, h := range hosts {
		if len(busy) == 0 {
			busy[h.Domain] = true
		}
		if len(names) < number && len(busy) == 1 && busy[h.Domain] {
			names = append(names, h.Name)
		}
	}
	return names
}

// inOrder compares two hosts in the order of a rollout.
func inOrder(a, b *Candidate) int {
	return cmp.Or(trueLast(a.IsLast, b.IsLast), emptyLast(a.Domain, b.Domain), emptyLast(a.Zone, b.Zone), a.CreationTime.Compare(b.CreationTime), cmp.Compare(a.Name, b.Name))
}

// trueLast sorts true last.
func trueLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// emptyLast sorts "" last.
func emptyLast(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(a, b)
}
