package pool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// hashLength is how many hex digits of the content's SHA-256 are in a rendered config's name.
const hashLength = 32

// NameFor is the name of a rendered config: rendered-<pool's name>-<hash of its content>. The hash is of the content,
// not of its bytes: an API server that stores keys in another order changes nothing.
func NameFor(poolName string, spec poolv1.MachineConfigSpec) (string, error) {
	content, err := contentOf(spec)
	if err != nil {
		return "", fmt.Errorf("MachineConfigPool %q: the rendered config is not JSON: %w", poolName, err)
	}
	return nameOf(poolName, content)
}

// nameOf is the name of a rendered config with this content.
func nameOf(poolName string, content []byte) (string, error) {
	if len(poolName) > validation.LabelValueMaxLength {
		return "", fmt.Errorf("MachineConfigPool %q: metadata.name is longer than %d characters, the most that a label of "+
			"its rendered configs can hold: use a shorter name", poolName, validation.LabelValueMaxLength)
	}
	hash := sha256.Sum256(content)
	return poolv1.RenderedNamePrefix + poolName + "-" + hex.EncodeToString(hash[:])[:hashLength], nil
}

// SameContent says whether two rendered configs, by their names, hold the same, whichever pools they were rendered for.
func SameContent(a, b string) bool {
	hash := hashIn(a)
	return a == b || hash != "" && hash == hashIn(b)
}

// hashIn is the hash of the content in a rendered config's name; "" when there is none.
func hashIn(name string) string {
	rest, is := strings.CutPrefix(name, poolv1.RenderedNamePrefix)
	if i := strings.LastIndexByte(rest, '-'); is && len(rest)-i-1 == hashLength {
		return rest[i+1:]
	}
	return ""
}

// contentOf is a spec as JSON with its keys in order.
func contentOf(spec poolv1.MachineConfigSpec) ([]byte, error) {
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	// Decoded into maps and encoded again, keys are in order.
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return nil, err
	}
	return json.Marshal(content)
}

// contentOfRendered is contentOf a spec that merge made. Its Ignition, which is nearly all of it, has its keys in order
// already.
func contentOfRendered(spec poolv1.MachineConfigSpec) ([]byte, error) {
	config := spec.Config.Raw
	spec.Config = &runtime.RawExtension{}
	rest, err := contentOf(spec)
	if err != nil {
		return nil, err
	}
	// No other key is "config", and no text can hold its quotes unescaped.
	before, after, _ := bytes.Cut(rest, []byte(`"config":null`))
	return slices.Concat(before, []byte(`"config":`), config, after), nil
}
