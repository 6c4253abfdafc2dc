package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// hostStatus is the state of a host of a pool, as it is printed as JSON.
type hostStatus struct {
	PoolbootConfig string `json:"poolbootConfig"`
	// Host is the BareMetalHost, or the host that enrolled.
	Host string `json:"host"`
	Node string `json:"node"`
	// State is the reason of the condition Updated, and Message its message. They are empty if the condition does not
	// exist yet. Since is when its status changed.
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message"`
	// Current is the rendered config that the host runs, and Desired the one that its pool hands out.
	Current string `json:"current"`
	Desired string `json:"desired"`
	// Agent is the version of the agent that the host runs, or "" without one.
	Agent string `json:"agent"`

	isUpdated, isWrong bool
}

// newHostStatus returns the state of a host of a pool.
func newHostStatus(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig) hostStatus {
	h := hostStatus{PoolbootConfig: config.Name, Node: config.Status.NodeRef.Name, Current: config.Status.Boot.ServedConfiguration.Name, Desired: p.Status.Configuration.Name,
		Agent: config.Status.Update.AgentVersion}
	switch {
	case config.Status.HostRef.IsDefined():
		h.Host = config.Status.HostRef.Name
	case record.IsMachineless(config):
		h.Host = config.Spec.Host.NodeName
	}
	hasConfig := h.runsDesired()
	if c := conditions.Get(config, bootstrapv1.UpdatedCondition); c != nil {
		h.State, h.Since, h.Message = c.Reason, c.LastTransitionTime.Time, rollout.Resolve(c.Message, p)
		// What failed with an earlier config can work with this one.
		isEarlier := slices.Contains([]string{bootstrapv1.UpdateDegradedReason, bootstrapv1.UpdateUnreconcilableReason}, c.Reason) && config.Status.Update.Desired.Name != h.Desired
		h.isWrong = outlook.IsWrong(c) && !isEarlier
		h.isUpdated = hasConfig && (c.Status == metav1.ConditionTrue || c.Reason == bootstrapv1.NoAgentReason)
		if c.Reason == bootstrapv1.NoAgentReason {
			h.isWrong = !hasConfig
		}
		if force := config.Annotations[bootstrapv1.ForceUpdateAnnotation]; h.isWrong && force != "" && force != config.Status.Update.Force {
			h.isWrong = false
			h.State, h.Message = bootstrapv1.UpdateWaitingReason, fmt.Sprintf("Node %s has not been told yet to apply its configuration again: %s", h.Node, c.Message)
		}
		// The manager has not yet seen what the pool hands out now.
		if c.Status == metav1.ConditionTrue && !hasConfig {
			h.State, h.Message = bootstrapv1.UpdateWaitingReason, fmt.Sprintf("Node %s has not been told yet to run %s", h.Node, h.Desired)
		}
	}
	return h
}

// runsDesired reports whether the host runs what its pool hands out.
func (h hostStatus) runsDesired() bool { return h.Current != "" && h.Current == h.Desired }

// isSame reports whether everything that is printed of a host is the same.
func (h hostStatus) isSame(other hostStatus) bool {
	isSameTime := h.Since.Equal(other.Since)
	h.Since, other.Since = time.Time{}, time.Time{}
	return isSameTime && h == other
}

// isInUpdate reports whether a host is being updated.
func (h hostStatus) isInUpdate() bool {
	return slices.Contains([]string{bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason, bootstrapv1.UpdateRebootingReason, bootstrapv1.UpdateVerifyingReason}, h.State)
}

// newHostStatuses returns the states of the hosts of a pool, by Node.
func newHostStatuses(p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig) []hostStatus {
	hosts := []hostStatus{}
	for i := range configs {
		hosts = append(hosts, newHostStatus(p, &configs[i]))
	}
	slices.SortFunc(hosts, func(a, b hostStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.PoolbootConfig, b.PoolbootConfig))
	})
	return hosts
}

// printHosts prints hosts in a table, which has the versions of agents if it is wide.
func printHosts(table *cli.Table, hosts []hostStatus) error {
	table.Header = []string{"HOST", "NODE", "STATE", "CURRENT", "DESIRED", "SINCE", "MESSAGE"}
	if table.Wide {
		table.Header = slices.Insert(table.Header, 6, "AGENT")
	}
	rows := make([][]string, len(hosts))
	for i, h := range hosts {
		since := ""
		if !h.Since.IsZero() {
			since = duration.HumanDuration(time.Since(h.Since))
		}
		rows[i] = []string{h.Host, h.Node, h.State, h.Current, h.Desired, since, h.Message}
		if table.Wide {
			rows[i] = slices.Insert(rows[i], 6, h.Agent)
		}
	}
	return table.Print(rows...)
}
