package pool

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// MergeError is the error for MachineConfigs that are valid one by one, but not together.
type MergeError struct {
	// Conflicts are the entries that are wrong, in the order of the merged Ignition. There is at least one.
	Conflicts []*Conflict
}

// maxConflicts and maxTogether limit what the message of a MergeError names: a condition has it too.
const maxConflicts, maxTogether = 10, 3

// Error names the first conflicts.
func (e *MergeError) Error() string {
	var text strings.Builder
	for i, conflict := range e.Conflicts {
		switch {
		case i == maxConflicts:
			fmt.Fprintf(&text, "; and %d more", len(e.Conflicts)-i)
			return text.String()
		case i > 0:
			text.WriteString("; ")
		}
		text.WriteString(conflict.Error())
	}
	return text.String()
}

// Unwrap returns the conflicts.
func (e *MergeError) Unwrap() (conflicts []error) {
	for _, conflict := range e.Conflicts {
		conflicts = append(conflicts, conflict)
	}
	return conflicts
}

// Conflict is an entry of a MachineConfig that is wrong together with entries of others.
type Conflict struct {
	// Entry is where the last MachineConfig with the entry has it. It is empty for what is no entry of a list.
	Entry Place
	// Together are the other MachineConfigs' entries: the same one, or, for example, a link above a file.
	Together []Place
	// Why is what is wrong with which entry, and what to do.
	Why string
}

// Place is a field of a MachineConfig or of a MachineConfigPool.
type Place struct {
	// Kind and Name are those of the object.
	Kind, Name string
	// Field is the path of the field, for example spec.config.storage.files[0].
	Field string
}

// Error names the entry, those that it is wrong together with, what is wrong and the remedy.
func (c *Conflict) Error() string { return c.Describe(func(Place) string { return "" }) }

// Describe is Error with a remark after each place in Together.
func (c *Conflict) Describe(remark func(Place) string) string {
	if c.Entry == (Place{}) {
		return "the merged Ignition: " + c.Why
	}
	var together []string
	for i, place := range c.Together {
		if i == maxTogether {
			together = append(together, fmt.Sprintf("%d more", len(c.Together)-i))
			break
		}
		together = append(together, fmt.Sprintf("%s of %s %q%s", place.Field, place.Kind, place.Name, remark(place)))
	}
	why := c.Why
	if len(together) > 0 {
		why = "together with " + strings.Join(together, " and ") + ": " + why
	}
	return fmt.Sprintf("%s %q: %s: %s", c.Entry.Kind, c.Entry.Name, c.Entry.Field, why)
}

// explainMerge returns an error about the Ignition of parts that are merged as a *MergeError.
func explainMerge(whole ignition.Config, parts []part, err error) error {
	var malformed *ignition.ParseError
	var guarded *ignition.GuardError
	var conflicts []*Conflict
	m := newMergedEntries(whole, parts)
	switch {
	case errors.As(err, &malformed):
		for _, problem := range malformed.Problems {
			e, inside := m.entryAt(problem.Path)
			conflicts = append(conflicts, m.conflict(problem.Path, problem.Message, m.contradicting(e, inside)))
		}
	case errors.As(err, &guarded):
		for _, refused := range guarded.Entries {
			var others []entry
			for _, through := range refused.Through {
				other, _ := m.entryAt(through)
				others = append(others, other)
			}
			conflicts = append(conflicts, m.conflict(refused.Path, refused.Why, others))
		}
	default:
		return err
	}
	return &MergeError{Conflicts: conflicts}
}

// mergedEntries are the entries of merged Ignition.
type mergedEntries struct {
	whole   ignition.Config
	byPlace map[string]entry
	places  map[entry][]Place // in the parts that have an entry, in the order of the merge
}

func newMergedEntries(whole ignition.Config, parts []part) *mergedEntries {
	m := &mergedEntries{whole: whole, byPlace: map[string]entry{}, places: map[entry][]Place{}}
	visitEntries(whole, func(e entry, list string, index int) {
		m.byPlace[fmt.Sprintf("%s[%d]", list, index)] = e
		m.places[e] = nil
	})
	for _, part := range parts {
		visitEntries(part.config, func(e entry, list string, index int) {
			if _, isIn := m.places[e]; isIn {
				m.places[e] = append(m.places[e], part.place(list, index))
			}
		})
	}
	return m
}

// place returns the place of an entry of a part. What a pool renders has no entries of the user.
func (p part) place(list string, index int) Place {
	if p.pool != "" {
		return Place{Kind: "MachineConfigPool", Name: p.pool, Field: p.field}
	}
	return Place{Kind: "MachineConfig", Name: p.machineConfig, Field: fmt.Sprintf("%s.%s[%d]", p.document, list, index)}
}

// entryPath matches the path of an entry, and what is behind it up to a list within the entry.
var entryPath = regexp.MustCompile(`^((?:systemd\.units\[\d+\]\.dropins|[A-Za-z.]+)\[\d+\])([A-Za-z.]*)`)

// entryAt returns the entry at a path of the merged document, and the path inside of the entry.
func (m *mergedEntries) entryAt(path string) (e entry, inside string) {
	match := entryPath.FindStringSubmatch(path)
	if match == nil {
		return e, ""
	}
	return m.byPlace[match[1]], match[2]
}

// conflict returns what is wrong at a path of the merged document, together with some other entries.
func (m *mergedEntries) conflict(path, why string, others []entry) *Conflict {
	e, inside := m.entryAt(path)
	places := m.places[e]
	if len(places) == 0 {
		return &Conflict{Why: path + ": " + why}
	}
	last := len(places) - 1
	together := slices.Clone(places[:last])
	for _, other := range others {
		if other != e {
			together = append(together, m.places[other]...)
		}
	}
	if !strings.Contains(why, e.name) {
		why = e.name + ": " + why
	}
	at := places[last]
	if at.Kind == "MachineConfig" {
		at.Field += inside
	}
	return &Conflict{Entry: at, Together: distinct(together), Why: why}
}

// distinct returns places without those that are there before.
func distinct(places []Place) (all []Place) {
	seen := map[Place]bool{}
	for _, place := range places {
		if !seen[place] {
			all = append(all, place)
		}
		seen[place] = true
	}
	return all
}

// contradicting returns the entries because of which Ignition refuses another one: a link above it, a unit at its path,
// or the directory that a hard link leads to.
func (m *mergedEntries) contradicting(e entry, inside string) (others []entry) {
	add := func(other entry) {
		if _, isIn := m.places[other]; isIn {
			others = append(others, other)
		}
	}
	switch {
	case e.slot().kind != KindFile:
	case inside == ".path":
		name := strings.TrimPrefix(e.name, "/etc/systemd/system/")
		add(entry{KindUnit, name})
		add(entry{KindDropin, name})
	case inside == "":
		for above := path.Dir(e.name); above != "/" && above != "."; above = path.Dir(above) {
			add(entry{KindLink, above})
		}
		for _, link := range m.whole.Storage.Links {
			if e == (entry{KindLink, link.Path}) {
				add(entry{KindDirectory, path.Clean(ptr.Deref(link.Target, ""))})
			}
		}
	}
	return others
}
