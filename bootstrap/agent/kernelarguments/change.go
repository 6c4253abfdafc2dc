package kernelarguments

import (
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// change is a change of the kernel arguments of a host. No list has an argument twice, except current.
type change struct {
	// current are the arguments with which the host boots next, or those of the running kernel if the program can't
	// tell.
	current []string
	// before and after are the arguments of the old and the new configuration.
	before, after []string
	record        record
}

// removed returns the arguments of either configuration that the host did not have before: all that can be on the host
// because of Poolboot.
func (c *change) removed() []string {
	return without(unique(slices.Concat(c.before, c.after)), c.record.Kept)
}

// nowRemoved returns the arguments of this and earlier configurations that the host should not have after the change.
func (c *change) nowRemoved() []string {
	return without(unique(slices.Concat(c.record.Removed, c.before)), slices.Concat(c.after, c.record.Kept))
}

// appended returns the arguments of the new configuration that are not on the host after removed has been removed.
func (c *change) appended() []string { return without(c.after, without(c.current, c.removed())) }

// target returns the arguments after the change.
func (c *change) target() []string {
	return slices.Concat(without(c.current, c.removed()), c.appended())
}

// reorders reports whether arguments that stay have to move: it is not enough to remove some and to append others.
func (c *change) reorders() bool {
	own := without(c.after, c.record.Kept)
	stay := intersection(c.before, own)
	return !slices.Equal(slices.Concat(stay, without(own, stay)), own)
}

// Missing returns which of the arguments of a configuration are not among those of the running kernel. An item of a
// configuration can have several arguments. Quotes don't count: boot loaders move them.
func Missing(running, arguments []string) []string {
	plain := func(argument string) string { return strings.ReplaceAll(argument, `"`, "") }
	has := map[string]bool{}
	for _, argument := range running {
		has[plain(argument)] = true
	}
	return slices.DeleteFunc(unique(ignition.SplitArguments(arguments)), func(argument string) bool { return has[plain(argument)] })
}

// unique returns arguments without repetitions, as Ignition writes them.
func unique(arguments []string) []string {
	var result []string
	for _, argument := range arguments {
		if !slices.Contains(result, argument) {
			result = append(result, argument)
		}
	}
	return result
}

func without(arguments, removed []string) []string {
	return slices.DeleteFunc(slices.Clone(arguments), func(argument string) bool { return slices.Contains(removed, argument) })
}

func intersection(arguments, kept []string) []string {
	return without(arguments, without(arguments, kept))
}

// nameOf returns the name of an argument, without its value.
func nameOf(argument string) string {
	name, _, _ := strings.Cut(argument, "=")
	return name
}

// areEquivalent reports whether two lists have the same arguments, and those of the same name in the same order. Some
// versions of the programs sort arguments by name, and for the kernel the order of different names does not matter.
func areEquivalent(a, b []string) bool {
	byName := func(arguments []string) []string {
		sorted := slices.Clone(arguments)
		slices.SortStableFunc(sorted, func(a, b string) int { return strings.Compare(nameOf(a), nameOf(b)) })
		return sorted
	}
	return slices.Equal(byName(a), byName(b))
}
