package input

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"
)

// mergeTag is the tag of the key <<, which merges mappings into one.
const mergeTag = "!!merge"

// keyTwice is in the parser's error for a key that is given twice.
const keyTwice = "already set in map"

// mustBeFirst is in the error for a merge key behind a key that it sets too: kubectl and kustomize differ in which
// one wins.
const mustBeFirst = `"<<" sets it too: write "<<" before it`

// explainMergeKeys returns the error of the parser about keys of a text that are given twice, without those that are
// written over merged ones: the parser does not know merge keys.
func explainMergeKeys(text []byte, err error) error {
	root := parseLines(text)
	if root == nil || !hasMergeKey(root) {
		return err
	}
	return errors.Join(duplicateKeys(root, map[*yaml.Node]sets.Set[string]{})...)
}

func hasMergeKey(node *yaml.Node) bool {
	for i, inner := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && inner.ShortTag() == mergeTag || hasMergeKey(inner) {
			return true
		}
	}
	return false
}

// duplicateKeys returns an error for each key that a mapping has twice, and for each merge key behind a key that it
// sets. What merge keys set is in merged, by their values.
func duplicateKeys(node *yaml.Node, merged map[*yaml.Node]sets.Set[string]) (errs []error) {
	if node.Kind == yaml.MappingNode {
		known := sets.New[string]()
		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i]
			if key.ShortTag() != mergeTag {
				if known.Has(key.Value) {
					errs = append(errs, fmt.Errorf("line %d: key %q %s", key.Line, key.Value, keyTwice))
				}
				known.Insert(key.Value)
				continue
			}
			for _, name := range sets.List(mergedKeys(node.Content[i+1], merged).Intersection(known)) {
				errs = append(errs, fmt.Errorf("line %d: %q: %s", key.Line, name, mustBeFirst))
			}
		}
	}
	for _, inner := range node.Content {
		errs = append(errs, duplicateKeys(inner, merged)...)
	}
	return errs
}

// mergedKeys returns the keys that the value of a merge key sets.
func mergedKeys(value *yaml.Node, merged map[*yaml.Node]sets.Set[string]) sets.Set[string] {
	if known, isKnown := merged[value]; isKnown {
		return known
	}
	keys := sets.New[string]()
	merged[value] = keys
	switch value.Kind {
	case yaml.AliasNode:
		keys.Insert(mergedKeys(value.Alias, merged).UnsortedList()...)
	case yaml.SequenceNode:
		for _, one := range value.Content {
			keys.Insert(mergedKeys(one, merged).UnsortedList()...)
		}
	case yaml.MappingNode:
		for i := 0; i < len(value.Content); i += 2 {
			if value.Content[i].ShortTag() == mergeTag {
				keys.Insert(mergedKeys(value.Content[i+1], merged).UnsortedList()...)
			} else {
				keys.Insert(value.Content[i].Value)
			}
		}
	}
	return keys
}
