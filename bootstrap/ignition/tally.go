package ignition

import (
	"cmp"
	"slices"
)

// tally counts the entries of every key in lists that share their keys, and records their order after the merge.
// Ignition's merge takes time for every entry of both sides, but an entry whose key occurs once needs no merge: it is
// set aside, and added again at its position.
type tally struct {
	keys         map[string]*keyCount
	lastPosition int
}

type keyCount struct {
	entries  int
	list     string // the list that the latest entry is in
	position int    // the position of the key in that list
}

// keyed is an entry of a list; Ignition merges entries of the same key.
type keyed interface{ Key() string }

// countKeys counts the entries of one list. A key that moves to another list, such as a link that replaces a file, gets
// a position at the end.
func countKeys[Entry keyed](t *tally, list string, entries []Entry) {
	for _, entry := range entries {
		counted, ok := t.keys[entry.Key()]
		if !ok {
			counted = &keyCount{}
			t.keys[entry.Key()] = counted
		}
		if counted.list != list {
			t.lastPosition++
			counted.list, counted.position = list, t.lastPosition
		}
		counted.entries++
	}
}

// extractUnique moves the entries whose key occurs once from a list to aside.
func extractUnique[Entry keyed](t *tally, entries, aside *[]Entry) {
	var rest []Entry
	for _, entry := range *entries {
		if t.keys[entry.Key()].entries == 1 {
			*aside = append(*aside, entry)
		} else {
			rest = append(rest, entry)
		}
	}
	*entries = rest
}

// restoreUnique combines merged entries with those that were set aside, in order. An entry has another key than all others.
func restoreUnique[Entry keyed](t *tally, merged, aside []Entry) []Entry {
	all := append(aside, merged...)
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(t.keys[a.Key()].position, t.keys[b.Key()].position) })
	return all
}
