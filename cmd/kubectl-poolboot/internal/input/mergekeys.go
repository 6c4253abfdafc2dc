package input

import (
	"errors"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// mergeTag is the tag of the key <<, which merges mappings into one.
const mergeTag = "!!merge"

// keyTwice is in the parser's error for a key that is given twice.
const keyTwice = "already set in map"

// mustBeFirst is the error for a merge key behind other keys: kubectl and kustomize differ in which one wins.
const mustBeFirst = `"<<" is behind other keys: write it before them`

// definedTwice matches the error of a parser that knows merge keys about a key that is given twice.
var definedTwice = regexp.MustCompile(`^line (\d+): mapping key (".*") already defined at line \d+$`)

// explainMergeKeys returns the error of the parser about keys of a text that are given twice, without those that are
// written over merged ones: the parser does not know merge keys.
func explainMergeKeys(text []byte, err error) error {
	root := parseLines(text)
	if root == nil {
		return err
	}
	hasMergeKey, errs := findMergeKeys(root)
	if !hasMergeKey {
		return err
	}
	if twice := (*yaml.TypeError)(nil); errors.As(root.Decode(new(any)), &twice) {
		for _, problem := range twice.Errors {
			errs = append(errs, errors.New(definedTwice.ReplaceAllString(problem, "line $1: key $2 "+keyTwice)))
		}
	}
	return errors.Join(errs...)
}

// findMergeKeys reports whether there is a merge key, and returns an error for each that is not the first key.
func findMergeKeys(node *yaml.Node) (found bool, late []error) {
	for i, inner := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && inner.ShortTag() == mergeTag {
			found = true
			if i > 0 {
				late = append(late, fmt.Errorf("line %d: %s", inner.Line, mustBeFirst))
			}
		}
		isWithin, more := findMergeKeys(inner)
		found, late = found || isWithin, append(late, more...)
	}
	return found, late
}
