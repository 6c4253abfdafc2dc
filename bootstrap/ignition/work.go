package ignition

import (
	"fmt"
	"reflect"

	"k8s.io/utils/ptr"
)

const (
	// maxPairs is the maximum number of pairs of entries that Ignition compares when it validates a configuration: each
	// link with each file, directory and link, and the partitions of each disk with each other. Without a limit, a
	// configuration that fits into an object takes a minute of processor time wherever it is parsed, also on hosts.
	maxPairs = 4_000_000
	// maxTemplateBytes is the maximum number of bytes of templates that Ignition reads when it validates a
	// configuration: a template once for each of its instances that is enabled.
	maxTemplateBytes = 10_000_000
	// maxParsedValues is the maximum number of values of a document that Ignition's own parser reads: it takes up to
	// 0.1 ms for each.
	maxParsedValues = 20_000
)

// checkValues returns a *ParseError if a document has too many values for Ignition's own parser, which reads it if it
// is of spec 2, or not valid and of several lines.
func checkValues(raw []byte) error {
	if count := countValues(raw); count > maxParsedValues {
		return newParseError("", fmt.Sprintf("the document has %d values, and only %d are read of one that is of spec version 2, or not valid: "+
			"split it into several, or use spec version 3.5.0 and find the mistake with a part of it", count, maxParsedValues))
	}
	return nil
}

// countValues returns about how many values a JSON document has, without those that are keys.
func countValues(raw []byte) (count int) {
	inString := false
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			inString = !inString
		case '\\':
			i++ // outside of strings, the document is malformed
		case ',', '{', '[':
			if !inString {
				count++
			}
		}
	}
	return count
}

// work counts what Ignition does for a configuration in more than the time that is proportional to its size.
type work struct{ links, nodes, partitionPairs, templateBytes int }

// problem returns what is too much, or nil.
func (w work) problem() *Problem {
	switch {
	case w.links*w.nodes > maxPairs:
		return &Problem{Path: "storage.links", Message: fmt.Sprintf("there are %d links, each of which Ignition compares with all %d files, directories and links: "+
			"these are %d pairs, and at most %d are allowed: remove links, or create them with a file of tmpfiles.d", w.links, w.nodes, w.links*w.nodes, maxPairs)}
	case w.partitionPairs > maxPairs:
		return &Problem{Path: "storage.disks", Message: fmt.Sprintf("Ignition compares the partitions of each disk with each other: these are %d pairs, and at most %d are allowed: remove partitions",
			w.partitionPairs, maxPairs)}
	case w.templateBytes > maxTemplateBytes:
		return &Problem{Path: "systemd.units", Message: fmt.Sprintf("Ignition reads a template once for each of its instances that is enabled: "+
			"these are %d bytes, and at most %d are allowed: shorten templates, or remove instances", w.templateBytes, maxTemplateBytes)}
	}
	return nil
}

// checkWork returns a *ParseError if a configuration of spec 2.4 or 3.5 is too much work for Ignition.
func checkWork(config reflect.Value) error {
	storage, systemd := config.FieldByName("Storage"), config.FieldByName("Systemd")
	count := func(list string) int { return storage.FieldByName(list).Len() }
	w := work{links: count("Links"), nodes: count("Links") + count("Files") + count("Directories")}
	disks := storage.FieldByName("Disks")
	for i := range disks.Len() {
		partitions := disks.Index(i).FieldByName("Partitions").Len()
		w.partitionPairs += partitions * partitions
	}
	units := systemd.FieldByName("Units")
	sizes, instances := map[string]int{}, map[string]int{}
	for i := range units.Len() {
		unit := units.Index(i)
		name := unit.FieldByName("Name").String()
		prefix, instance, kind, hasAt := splitUnitName(name)
		contents := reflect.Indirect(unit.FieldByName("Contents")) // no pointer in spec 2
		enabled, _ := unit.FieldByName("Enabled").Interface().(*bool)
		switch {
		case !hasAt:
		case instance == "":
			if contents.IsValid() {
				sizes[name] = contents.Len()
			}
		case ptr.Deref(enabled, false):
			instances[prefix+"@"+kind]++
		}
	}
	for template, count := range instances {
		w.templateBytes += count * sizes[template]
	}
	if problem := w.problem(); problem != nil {
		return &ParseError{Problems: []Problem{*problem}}
	}
	return nil
}
