package ignition

import (
	"cmp"
	"slices"
)

// tally counts the entries of every key in lists that share their keys, and records their order after the merge.
// Ignition's merge takes time for every entry of both sides, but an entry whose key occurs once needs no merge: it is
// set aside, and added again at its position.
type tally struct {
	keys  map[string]*counted
	place int
}

type counted struct {
	entries int
	list    string // the list that the latest entry is in
	place   int    // the position of the key in that list
}

// keyed is an entry of a list; Ignition merges entries of the same key.
type keyed interface{ Key() string }

// count counts the entries of one list. A key that moves to another list, such as a link that replaces a file, gets a
// position at the end.
func count[Entry keyed](t *tally, list string, entries []Entry) {
	for _, entry := range entries {
		known, has := t.keys[entry.Key()]
		if !has {
			known = &counted{}
			t.keys[entry.Key()] = known
		}
		if known.list != list {
			t.place++
			known.list, known.place = list, t.place
		}
		known.entries++
	}
}

// setAside moves the entries whose key occurs once from a list to aside.
func setAside[Entry keyed](t *tally, entries, aside *[]Entry) {
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

// putBack combines merged entries with those that were set aside, in order.
func putBack[Entry keyed](t *tally, merged, aside []Entry) []Entry {
	all := slices.Concat(merged, aside)
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(t.keys[a.Key()].place, t.keys[b.Key()].place) })
	return all
}
