package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	updates "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/rollout"
)

// page is what the template shows. Texts are as the objects have them: the template escapes them.
type page struct {
	Scope, Time string
	Watch       bool
	Unread      []string
	// Parts says of which lists the page has only a part.
	Parts     []string
	Pools     []pool
	PoolChart *chart
	// Failed are the hosts that need a person, Drifted those that differ from their configuration.
	Failed, Drifted           []*host
	FailedCount, DriftedCount int

	Configs               []config
	BootChart, StageChart []*chart
	Expirations           []expiration
}

// pool is a pool, or the hosts of a namespace that are in none.
type pool struct {
	ID string
	rollout.PoolStatus
	Since   string
	Domains []domain
	// IsShort means that its hosts fit on a screen.
	IsShort     bool
	hosts       []*host
	wrong, rank int
}

// IsShown reports whether the page has the hosts of the pool.
func (p *pool) IsShown() bool { return len(p.Domains) > 0 || len(p.hosts) == 0 }

// domain is a failure domain with its hosts.
type domain struct {
	ID, Name, Counts string
	Hosts            []*host
}

type host struct {
	Pool, Domain                                       string
	Name, Node, State, Config, Desired, Since, Message string
	Kind                                               kind
	Drift                                              string
	stage                                              record.Stage
	since                                              time.Time
	of                                                 *bootstrapv1.PoolbootConfig
}

// kind is what the state of a host means. The style sheet has a color for each.
type kind string

const (
	updated  kind = "updated"
	updating kind = "updating"
	waiting  kind = "waiting"
	booting  kind = "booting"
	failed   kind = "failed"
)

// kinds has the words for each kind, in the order of the legends.
var kinds = []entry{
	{"updated", string(updated)}, {"being updated", string(updating)}, {"waiting for an update", string(waiting)}, {"booting", string(booting)},
	{"needs you to act", string(failed)},
}

// config is a rendered config, and how many hosts run it where.
type config struct{ Name, HandedOut, Hosts, Where string }

type expiration struct {
	What, Time, Left string
	// IsSoon means within a month.
	IsSoon bool
	time   time.Time
}

// maxPage is how many bytes a page has at most, so that a browser can show the page of any fleet.
const maxPage = 5_000_000

// render returns a page with as many rows of each list as fit.
func (f *fleet) render(now time.Time, watch bool) (text []byte, err error) {
	p := f.newPage(now)
	p.Watch = watch
	for limit := 5000; ; limit /= 2 {
		if text, err = p.first(limit, now).render(); err != nil || len(text) <= maxPage || limit == 0 {
			return text, err
		}
	}
}

// newPage returns a page with all rows, and without hosts by failure domain and charts.
func (f *fleet) newPage(now time.Time) *page {
	p := &page{Scope: "all namespaces", Time: now.UTC().Format(time.RFC1123), Unread: f.unread}
	if f.namespace != "" {
		p.Scope = "namespace " + f.namespace
	}
	statuses, _ := rollout.Fleet(f.pools, f.configs)
	hosts := f.hosts(statuses, now)
	where := map[string]map[string]int{} // hosts by config, and by pool and failure domain
	handedOut := map[string][]string{}
	for i, status := range statuses {
		of := pool{ID: fmt.Sprintf("pool-%d", i), PoolStatus: status, hosts: hosts[[2]string{status.Namespace, status.Pool}]}
		delete(hosts, [2]string{status.Namespace, status.Pool})
		of.Since = ago(status.Since, now)
		p.Pools = append(p.Pools, of)
		if name := cli.ShortenNames(status.Configuration); name != "" {
			handedOut[name] = append(handedOut[name], status.Pool)
			where[name] = map[string]int{}
		}
	}
	for key, inNone := range hosts {
		p.Pools = append(p.Pools, pool{PoolStatus: rollout.PoolStatus{Namespace: key[0]}, hosts: inNone})
	}
	slices.SortStableFunc(p.Pools, func(a, b pool) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pool, b.Pool)) })
	for i := range p.Pools {
		of := &p.Pools[i]
		of.ID = cmp.Or(of.ID, fmt.Sprintf("none-%d", i))
		for _, h := range of.hosts {
			if h.Kind == failed {
				p.Failed = append(p.Failed, h)
				of.wrong++
			}
			if h.Drift != "" {
				p.Drifted = append(p.Drifted, h)
			}
			if h.Config != "" {
				if where[h.Config] == nil {
					where[h.Config] = map[string]int{}
				}
				where[h.Config][cmp.Or(h.Pool, "no pool")+", "+h.Domain]++
			}
		}
	}
	p.addConfigs(handedOut, where)
	p.addExpirations(f, now)
	p.FailedCount, p.DriftedCount = len(p.Failed), len(p.Drifted)
	return p
}

// first returns a page with at most limit rows of each list.
func (p *page) first(limit int, now time.Time) *page {
	part := *p
	part.Pools = slices.Clone(p.Pools)
	part.addPools(limit, now)
	part.Unread = firstOf(&part, "what can't be read", p.Unread, limit)
	part.Failed = firstOf(&part, "hosts that need you to act", p.Failed, limit)
	part.Drifted = firstOf(&part, "hosts with drift", p.Drifted, limit)
	part.Configs = firstOf(&part, "configs", p.Configs, limit)
	part.Expirations = firstOf(&part, "expirations", p.Expirations, limit)
	return &part
}

// firstOf returns the first items of a list, and adds to the page how many they are.
func firstOf[T any](p *page, what string, items []T, limit int) []T {
	if len(items) <= limit {
		return items
	}
	p.Parts = append(p.Parts, fmt.Sprintf("%s: %d of %d", what, limit, len(items)))
	return items[:limit]
}

// addPools cuts the pools, their hosts and their charts to those with the most that is wrong, and then the most hosts.
func (p *page) addPools(limit int, now time.Time) {
	order := make([]*pool, len(p.Pools))
	for i := range p.Pools {
		order[i] = &p.Pools[i]
	}
	slices.SortStableFunc(order, func(a, b *pool) int {
		return cmp.Or(cmp.Compare(b.wrong, a.wrong), cmp.Compare(min(len(b.Problem), 1), min(len(a.Problem), 1)), cmp.Compare(len(b.hosts), len(a.hosts)))
	})
	shown, all := 0, 0
	for i, of := range order {
		of.rank = i
		all += len(of.hosts)
		if i < limit {
			shown += of.addDomains(limit - shown)
		}
	}
	charted := min(len(p.Pools), maxCharts, limit)
	if shown < all {
		p.Parts = append(p.Parts, fmt.Sprintf("hosts by failure domain: %d of %d", shown, all))
	}
	if charted < len(p.Pools) {
		p.Parts = append(p.Parts, fmt.Sprintf("pools with charts: %d of %d", charted, len(p.Pools)))
	}
	if limit < len(p.Pools) {
		p.Parts = append(p.Parts, fmt.Sprintf("pools: %d of %d", limit, len(p.Pools)))
	}
	p.addPoolChart(charted)
	for i := range p.Pools {
		if p.Pools[i].rank < charted {
			p.addCharts(&p.Pools[i], charted, now)
		}
	}
	p.Pools = slices.DeleteFunc(p.Pools, func(of pool) bool { return of.rank >= limit })
}

// hosts returns the hosts by the namespace and the name of their pool, which is "" for those without one.
func (f *fleet) hosts(statuses []rollout.PoolStatus, now time.Time) map[[2]string][]*host {
	type state struct {
		pool rollout.PoolStatus
		rollout.HostStatus
	}
	states, configs, labels, poolOf := map[client.ObjectKey]state{}, map[client.ObjectKey]*bootstrapv1.PoolbootConfig{}, map[[2]string]string{}, map[[3]string]string{}
	for _, status := range statuses {
		for _, h := range status.States {
			states[client.ObjectKey{Namespace: status.Namespace, Name: h.PoolbootConfig}] = state{status, h}
		}
	}
	for i := range f.pools {
		p := &f.pools[i]
		labels[[2]string{p.Namespace, p.Name}] = p.Spec.Updates.FailureDomainLabel
		poolOf[[3]string{p.Namespace, p.Spec.ClusterName, p.Spec.PoolRole}] = p.Name
	}
	for i := range f.configs {
		configs[client.ObjectKeyFromObject(&f.configs[i])] = &f.configs[i]
	}
	hosts := map[[2]string][]*host{}
	for _, b := range boots.List(f.configs) {
		key := client.ObjectKey{Namespace: b.Namespace, Name: b.PoolbootConfig}
		c := configs[key]
		h := &host{Pool: poolOf[[3]string{b.Namespace, b.Cluster, b.Pool}], Name: cmp.Or(b.Host, b.Machine, b.PoolbootConfig), Node: b.Node, State: string(b.Stage),
			Config: b.Configuration, Desired: b.Desired, Message: b.Message, Kind: booting, stage: b.Stage, since: b.Since, of: c}
		if b.Stage == record.StageDeleting || b.Stage == record.StageReady {
			h.Kind = waiting
		}
		if b.Stage == record.StageAsFound { // it is in no pool
			h.Pool, h.Kind = "", waiting
		}
		if outlook.FindNeedsPerson(c) != nil {
			h.Kind = failed
		}
		if s, has := states[key]; has {
			h.State, h.Message, h.since, h.Desired = cmp.Or(s.State, h.State), cmp.Or(s.Message, h.Message), s.Since, s.Desired
			switch {
			case s.IsWrong:
				h.Kind = failed
			case s.IsInUpdate:
				h.Kind = updating
			case s.IsUpdated:
				h.Kind, h.Message = updated, ""
			case record.HasJoined(c):
				h.Kind = waiting
			}
		}
		h.Since = ago(h.since, now)
		h.Config, h.Desired, h.Message = cli.ShortenNames(h.Config), cli.ShortenNames(h.Desired), shorten(h.Message)
		f.addNode(h, labels[[2]string{b.Namespace, h.Pool}])
		place := [2]string{b.Namespace, h.Pool}
		hosts[place] = append(hosts[place], h)
	}
	return hosts
}

// noDomain is the failure domain of a host of which none is known.
const noDomain = "no failure domain"

// addNode adds what the Node and the Machine of a host say.
func (f *fleet) addNode(h *host, label string) {
	node := f.nodes[clusterOf(h.of)][h.of.Status.NodeRef.Name]
	machine := f.machines[client.ObjectKey{Namespace: h.of.Namespace, Name: record.MachineName(h.of)}]
	running := updates.HostOf(nil, h.of, machine, node)
	h.Drift = shorten(running.Report.Drift)
	if disks := h.of.Status.Update.OutdatedDisks; len(disks) > 0 {
		h.Drift = strings.TrimPrefix(h.Drift+"; keeps its disks instead of "+strings.Join(disks, ", "), "; ")
	}
	if running.Node != nil {
		h.Domain = cmp.Or(running.Node.Labels[label], running.Node.Labels[corev1.LabelTopologyZone])
	}
	if machine != nil {
		h.Domain = cmp.Or(h.Domain, machine.Spec.FailureDomain)
	}
	h.Domain = cmp.Or(h.Domain, noDomain)
}

// shortPool is how many hosts the page shows without a click.
const shortPool = 40

// addDomains adds the first hosts, those that need a person before others, and returns how many these are.
func (p *pool) addDomains(limit int) int {
	first := slices.Clone(p.hosts)
	if len(first) > limit {
		slices.SortStableFunc(first, func(a, b *host) int { return cmp.Compare(rank(a.Kind), rank(b.Kind)) })
		first = first[:limit]
	}
	by, all := byDomain(first), byDomain(p.hosts)
	for i, name := range slices.Sorted(maps.Keys(by)) {
		p.Domains = append(p.Domains, domain{ID: fmt.Sprintf("%s-%d", p.ID, i), Name: name, Hosts: by[name], Counts: describeCounts(all[name])})
	}
	p.IsShort = len(p.hosts) <= shortPool
	return len(first)
}

func byDomain(hosts []*host) map[string][]*host {
	by := map[string][]*host{}
	for _, h := range hosts {
		by[h.Domain] = append(by[h.Domain], h)
	}
	return by
}

// count returns how many hosts are of a kind.
func count(hosts []*host, of string) (n int) {
	for _, h := range hosts {
		if string(h.Kind) == of {
			n++
		}
	}
	return n
}

func describeCounts(hosts []*host) string {
	var parts []string
	for _, k := range kinds {
		if n := count(hosts, k.Class); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k.Name))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *page) addConfigs(handedOut map[string][]string, where map[string]map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(where)) {
		total, places := 0, []string{}
		for _, place := range slices.Sorted(maps.Keys(where[name])) {
			total += where[name][place]
			places = append(places, fmt.Sprintf("%s: %d", place, where[name][place]))
		}
		p.Configs = append(p.Configs, config{Name: name, HandedOut: strings.Join(handedOut[name], ", "), Hosts: fmt.Sprint(total), Where: strings.Join(places, "; ")})
	}
}

func (p *page) addExpirations(f *fleet, now time.Time) {
	all := f.certificates
	for i := range f.enrollments {
		e := &f.enrollments[i]
		all = append(all, expiration{What: "Token of Enrollment " + client.ObjectKeyFromObject(e).String(), time: e.Spec.ExpirationTime.Time})
	}
	for key, m := range f.machines {
		if at := m.Status.CertificatesExpiryDate; !at.IsZero() {
			all = append(all, expiration{What: "Certificates of the control plane on Machine " + key.String(), time: at.Time})
		}
	}
	for i := range f.configs {
		c := &f.configs[i]
		if at := c.Status.Boot.CredentialExpirationTime; at != nil && !record.HasJoined(c) {
			all = append(all, expiration{What: "Join credential of PoolbootConfig " + client.ObjectKeyFromObject(c).String(), time: at.Time})
		}
	}
	slices.SortFunc(all, func(a, b expiration) int { return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.What, b.What)) })
	for i := range all {
		e := &all[i]
		left := e.time.Sub(now)
		e.Time, e.IsSoon, e.Left = e.time.UTC().Format(time.RFC3339), left < 30*24*time.Hour, "expired"
		if left > 0 {
			e.Left = "in " + duration.HumanDuration(left)
		}
	}
	p.Expirations = all
}

func ago(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(at))
}
