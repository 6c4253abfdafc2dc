package pool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// hashLength is how many hex digits of the content's SHA-256 are in a rendered config's name.
const hashLength = 32

// NameFor is the name of a rendered config: rendered-<pool's name>-<hash of its content>. The hash is of the content, not
// of its bytes: an API server that stores keys in another order changes nothing.
func NameFor(poolName string, spec poolv1.MachineConfigSpec) (string, error) {
	if len(poolName) > validation.LabelValueMaxLength {
		return "", fmt.Errorf("MachineConfigPool %q: metadata.name is longer than %d characters, the most that a label of "+
			"its rendered configs can hold: use a shorter name", poolName, validation.LabelValueMaxLength)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("MachineConfigPool %q: the rendered config is not JSON: %w", poolName, err)
	}
	// Decoded into maps and encoded again, keys are in order.
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return "", err
	}
	if raw, err = json.Marshal(content); err != nil {
		return "", err
	}
	hash := sha256.Sum256(raw)
	return poolv1.RenderedNamePrefix + poolName + "-" + hex.EncodeToString(hash[:])[:hashLength], nil
}
