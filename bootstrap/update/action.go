package update

import (
	"slices"
	"strings"
)

// ActionType is the type of an action. The API has the same types but Stop, which no policy of a pool can have.
type ActionType string

// Types of actions.
const (
	None         ActionType = "None"
	DaemonReload ActionType = "DaemonReload"
	Stop         ActionType = "Stop"
	Reload       ActionType = "Reload"
	Restart      ActionType = "Restart"
	Drain        ActionType = "Drain"
	Reboot       ActionType = "Reboot"
)

// Action is what a host does after a part of its configuration changed.
type Action struct {
	Type ActionType `json:"type"`
	// Unit is the unit of Stop, Reload and Restart.
	Unit string `json:"unit,omitempty"`
	// IfExists means that a host without the unit skips the action. Otherwise the action fails on such a host.
	IfExists bool `json:"ifExists,omitempty"`
}

// String returns the action as text, such as "Restart kubelet.service".
func (a Action) String() string { return strings.TrimSpace(string(a.Type) + " " + a.Unit) }

// Summary returns actions as text, each once, such as "DaemonReload, Restart kubelet.service".
func Summary(actions []Action) string {
	var texts []string
	for _, action := range actions {
		if text := action.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ", ")
}

// Summary returns steps as text, such as "stop a.timer, DaemonReload, start b.service".
func (s Steps) Summary() string {
	var texts []string
	for _, unit := range s.Stop {
		texts = append(texts, "stop "+unit)
	}
	if actions := Summary(s.Actions); actions != string(None) || len(s.Stop)+len(s.Start) == 0 {
		texts = append(texts, actions)
	}
	for _, unit := range s.Start {
		texts = append(texts, "start "+unit)
	}
	return strings.Join(texts, ", ")
}

func isOfType(t ActionType) func(Action) bool {
	return func(a Action) bool { return a.Type == t }
}

// step orders actions: the Node is drained first, and what is stopped then is started by the others.
func (a Action) step() int {
	switch a.Type {
	case Drain:
		return 0
	case Stop:
		return 1
	}
	return 2
}

// combine returns the actions after all changes, in the order of their steps and of the changes. Reboot replaces all
// others, and None is there only if there is no other. As in OpenShift, an action that several changes need is there
// several times.
func combine(changes []Difference) []Action {
	var actions []Action
	for _, change := range changes {
		actions = append(actions, change.Actions...)
	}
	if slices.ContainsFunc(actions, isOfType(Reboot)) {
		return []Action{{Type: Reboot}}
	}
	actions = slices.DeleteFunc(actions, isOfType(None))
	if len(actions) == 0 {
		return []Action{{Type: None}}
	}
	slices.SortStableFunc(actions, func(a, b Action) int { return a.step() - b.step() })
	return actions
}
