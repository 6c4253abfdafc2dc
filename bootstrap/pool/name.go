package pool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// hashLength is the number of hex digits of the content's SHA-256 in a rendered config's name.
const hashLength = 32

// NameFor returns the name of a rendered config: rendered-<pool's name>-<hash of its content>. The hash does not depend
// on the order of keys, which an API server can change.
func NameFor(poolName string, spec poolv1.MachineConfigSpec) (string, error) {
	content, err := contentOf(spec)
	if err != nil {
		return "", fmt.Errorf("MachineConfigPool %q: the rendered config is not JSON: %w", poolName, err)
	}
	return nameOf(poolName, content)
}

// nameOf returns the name of a rendered config with this content, which can be in parts.
func nameOf(poolName string, content ...[]byte) (string, error) {
	if len(poolName) > validation.LabelValueMaxLength {
		return "", fmt.Errorf("MachineConfigPool %q: metadata.name is longer than %d characters, the most that a label of "+
			"its rendered configs can hold: use a shorter name", poolName, validation.LabelValueMaxLength)
	}
	hash := sha256.New()
	for _, part := range content {
		hash.Write(part)
	}
	return poolv1.RenderedNamePrefix + poolName + "-" + hex.EncodeToString(hash.Sum(nil))[:hashLength], nil
}

// IsRenderedName reports whether a name is one that only rendered configs have.
func IsRenderedName(name string) bool { return strings.HasPrefix(name, poolv1.RenderedNamePrefix) }

// IsRenderedNameOf reports whether a name is one of rendered configs of a pool.
func IsRenderedNameOf(poolName, name string) bool {
	hash := hashIn(name)
	return hash != "" && strings.Trim(hash, "0123456789abcdef") == "" && name == poolv1.RenderedNamePrefix+poolName+"-"+hash
}

// HasSameContent reports whether two rendered configs have the same content, by the hashes in their names. The pools
// that they were rendered for can differ.
func HasSameContent(a, b string) bool {
	hash := hashIn(a)
	return a == b || hash != "" && hash == hashIn(b)
}

// hashIn returns the hash in a rendered config's name, or "" if there is none.
func hashIn(name string) string {
	rest, ok := strings.CutPrefix(name, poolv1.RenderedNamePrefix)
	if i := strings.LastIndexByte(rest, '-'); ok && len(rest)-i-1 == hashLength {
		return rest[i+1:]
	}
	return ""
}

// contentOf encodes a spec, or a part of one, as JSON with sorted keys.
func contentOf(spec any) ([]byte, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	// encoding/json sorts the keys of maps.
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// contentOfRendered returns the same as contentOf for a spec that mergeConfigs returned, in parts and faster: the keys
// of its Ignition, the largest part, are already sorted.
func contentOfRendered(spec poolv1.MachineConfigSpec) ([][]byte, error) {
	config := spec.Config.Raw
	spec.Config = &runtime.RawExtension{}
	rest, err := contentOf(spec)
	if err != nil {
		return nil, err
	}
	// No other key is "config", and in a JSON string the quotes are escaped.
	before, after, _ := bytes.Cut(rest, []byte(`"config":null`))
	return [][]byte{before, []byte(`"config":`), config, after}, nil
}
