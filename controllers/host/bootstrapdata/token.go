package bootstrapdata

import (
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// ownerOf returns the owner of a config's token.
func ownerOf(config *bootstrapv1.PoolbootConfig) access.Owner {
	return access.Config(client.ObjectKeyFromObject(config), config.UID)
}

// isTokenBound reports whether the recorded token of a config is bound to it, and not to an earlier object with the
// same name.
func isTokenBound(config *bootstrapv1.PoolbootConfig) bool {
	recorded := record.TokenOf(config)
	return record.HasJoined(config) || recorded.Hash != "" && recorded.UID == config.UID
}

// isRecordedToken reports whether a token is the recorded token of a config, expired or not. After clusterctl move or a
// restore from a backup, the recorded token is still bound to the earlier object with the same name.
func isRecordedToken(config *bootstrapv1.PoolbootConfig, token string) bool {
	recorded := record.TokenOf(config)
	return access.Config(client.ObjectKeyFromObject(config), recorded.UID).Accepts(recorded.Hash, token)
}

// pointerAnnotations returns the annotations by which the config server recognizes the host, read back from the
// pointer. The recorded state stays: a revoked token stays revoked, and an expired token stays expired when it is bound
// again.
func pointerAnnotations(config *bootstrapv1.PoolbootConfig, secret *corev1.Secret) (map[string]string, error) {
	pointer, address, err := parsePointer(config, secret)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{bootstrapv1.PointerIDAnnotation: address.PointerID}
	switch recorded := record.TokenOf(config); {
	case record.HasJoined(config):
		return annotations, nil
	case recorded.Hash == "":
		maps.Copy(annotations, ownerOf(config).Annotations(pointer.Token))
		return annotations, nil
	case isRecordedToken(config, pointer.Token):
		maps.Copy(annotations, ownerOf(config).Rebind(recorded, pointer.Token))
		return annotations, nil
	case record.IsRotationRequested(config):
		return annotations, nil
	}
	return nil, errors.New("its token is not the recorded one, so the config server would refuse the host")
}

// parsePointer reads the pointer in a data Secret. It returns an error if the pointer does not direct the host to this
// config.
func parsePointer(config *bootstrapv1.PoolbootConfig, secret *corev1.Secret) (ignition.Pointer, access.Address, error) {
	pointer, err := ignition.ParsePointer(secret.Data[bootstrapv1.DataSecretValueKey])
	if err != nil {
		return pointer, access.Address{}, err
	}
	address, err := access.ParseURL(pointer.URL)
	if key := client.ObjectKeyFromObject(config); err == nil && address.NamespacedName != key {
		err = fmt.Errorf("its URL is that of PoolbootConfig %s, not of %s: restore objects with their original namespace and name", address.NamespacedName, key)
	}
	return pointer, address, err
}
