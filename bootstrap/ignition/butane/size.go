package butane

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

const (
	// maxNodes is the maximum number of keys and values in a document after its aliases are replaced: Butane takes up
	// to 0.1 ms for each.
	maxNodes = 10_000
	// maxBytes is the maximum size of these keys and values in bytes: an alias of a large text can occur many times.
	maxBytes = 2 << 20
	// maxMirrored is the maximum number of disks that boot_device mirrors: Butane compares them in pairs.
	maxMirrored = 100
)

// size is how large a part of a document is after its aliases are replaced.
type size struct{ nodes, bytes int }

// checkSize returns an *ignition.ParseError if a document is too large for Butane.
func checkSize(document *yaml.Node) error {
	switch of := sizeOf(document, map[*yaml.Node]size{}); {
	case of.nodes > maxNodes:
		return newError("", fmt.Sprintf("there are %d keys and values after aliases are replaced, and at most %d are allowed: split the document into several",
			of.nodes, maxNodes))
	case of.bytes > maxBytes:
		return newError("", fmt.Sprintf("keys and values have %d bytes after aliases are replaced, and at most %d are allowed: use fewer aliases", of.bytes, maxBytes))
	}
	var boot struct {
		Device struct {
			Mirror struct {
				Devices []string `yaml:"devices"`
			} `yaml:"mirror"`
		} `yaml:"boot_device"`
	}
	_ = document.Decode(&boot) // Butane reports the error
	if count := len(boot.Device.Mirror.Devices); count > maxMirrored {
		return newError("boot_device.mirror.devices", fmt.Sprintf("there are %d disks, and at most %d are mirrored: remove disks", count, maxMirrored))
	}
	return nil
}

// sizeOf returns the size of a node. known has the sizes of nodes with an anchor, so each is counted once. One that
// contains itself, which the decoder refuses, has no size in itself.
func sizeOf(node *yaml.Node, known map[*yaml.Node]size) size {
	if of, ok := known[node]; ok {
		return of
	}
	if node.Kind == yaml.AliasNode {
		return sizeOf(node.Alias, known)
	}
	if node.Anchor != "" {
		known[node] = size{}
	}
	of := size{1, len(node.Value)}
	for _, child := range node.Content {
		in := sizeOf(child, known)
		of.nodes = min(of.nodes+in.nodes, maxCounted)
		of.bytes = min(of.bytes+in.bytes, maxCounted)
	}
	if node.Anchor != "" {
		known[node] = of
	}
	return of
}

// maxCounted is where a size ends to grow: aliases of aliases can multiply it beyond every number.
const maxCounted = 1 << 40
