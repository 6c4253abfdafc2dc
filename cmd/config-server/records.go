package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// records finds PoolbootConfigs by their name.
type records struct {
	kind[*bootstrapv1.PoolbootConfig, types.NamespacedName, server.Record]
}

func newRecords() *records {
	return &records{kind[*bootstrapv1.PoolbootConfig, types.NamespacedName, server.Record]{
		object: &bootstrapv1.PoolbootConfig{},
		of: func(config *bootstrapv1.PoolbootConfig) (types.NamespacedName, server.Record) {
			return client.ObjectKeyFromObject(config), recordOf(config)
		},
	}}
}

func recordOf(config *bootstrapv1.PoolbootConfig) server.Record {
	boot := config.Status.Boot
	prepared := meta.FindStatusCondition(config.Status.Conditions, bootstrapv1.BootPreparedCondition)
	used := ""
	if boot.Certificate.IsDefined() {
		used = boot.Certificate.CredentialID
	}
	token := record.TokenOf(config)
	addresses, old := addressesOf(config, tokenOf(token.Hash))
	return server.Record{
		NamespacedName:     client.ObjectKeyFromObject(config),
		UID:                config.UID,
		PointerID:          config.Annotations[bootstrapv1.PointerIDAnnotation],
		Token:              token,
		Rotating:           record.IsRotationRequested(config),
		Version:            config.ResourceVersion,
		FirstRequestedTime: timeOf(boot.FirstRequestedTime),
		RequestedTime:      timeOf(boot.RequestedTime),
		PreparedTime:       timeOf(boot.PreparedTime),
		ServedTime:         timeOf(boot.ServedTime),
		Addresses:          addresses,
		OldAddresses:       old,
		TokenAddresses:     boot.Addresses,
		Bound:              record.BindsTokenToAddresses(config),
		HostAddresses:      parsed(config.Status.HostAddresses),
		Enrollment:         config.Spec.EnrollmentName(),
		EnrolledFrom:       enrolledFrom(config),
		CredentialID:       boot.CredentialID,
		UsedCredential:     used,
		Troubled:           prepared != nil && prepared.Status == metav1.ConditionFalse,
		Pending:            pending(prepared),
	}
}

// enrolledFrom returns the address from which a host enrolled, or "" for other hosts.
func enrolledFrom(config *bootstrapv1.PoolbootConfig) string {
	if enrolled := config.Spec.Enrolled(); enrolled != nil {
		return enrolled.Address
	}
	return ""
}

// addressesOf returns the addresses from which a token was used, in order of first use, and the addresses of earlier
// tokens.
func addressesOf(config *bootstrapv1.PoolbootConfig, token string) (addresses, old []netip.Addr) {
	for _, noted := range slices.SortedFunc(slices.Values(config.Status.Boot.Addresses), record.ByFirstUse) {
		address, err := netip.ParseAddr(noted.Address)
		switch {
		case err != nil:
		case noted.Token == token:
			addresses = append(addresses, address)
		default:
			old = append(old, address)
		}
	}
	return addresses, old
}

// parsed returns the valid addresses of some texts.
func parsed(texts []string) (addresses []netip.Addr) {
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// tokenOf returns the part of the hash of a token that distinguishes it from earlier tokens.
func tokenOf(sha256 string) string {
	return sha256[:min(len(sha256), bootstrapv1.TokenHashPrefixLength)]
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// pending returns why the boot is not prepared, according to its condition.
func pending(prepared *metav1.Condition) string {
	if prepared == nil || prepared.Status == metav1.ConditionTrue {
		return ""
	}
	return fmt.Sprintf("%s: %s", prepared.Reason, prepared.Message)
}

// bootRecorder writes to the status of PoolbootConfigs. A merge patch of one field does not conflict with writes to
// other fields, so only patches of fields that others write too have a lock.
type bootRecorder struct{ client client.Client }

func (b bootRecorder) Requested(ctx context.Context, record server.Record, from netip.Addr, at time.Time) error {
	return b.write(ctx, record, func(record server.Record) (boot map[string]any, locked bool) {
		boot, locked = cameFrom(record, from, at)
		if !at.After(record.PreparedTime) {
			return boot, locked // what the host requested was prepared meanwhile
		}
		boot["requestedTime"] = metav1.MicroTime{Time: at}
		if record.BeginsBoot() {
			boot["firstRequestedTime"], locked = boot["requestedTime"], true
		}
		return boot, locked
	})
}

func (b bootRecorder) UsedFrom(ctx context.Context, record server.Record, from netip.Addr, at time.Time) error {
	return b.write(ctx, record, func(record server.Record) (map[string]any, bool) { return cameFrom(record, from, at) })
}

func (b bootRecorder) Served(ctx context.Context, record server.Record, at time.Time) error {
	return b.patch(ctx, record, "", map[string]any{"servedTime": metav1.MicroTime{Time: at}})
}

// cameFrom returns the patch of status.boot that adds the address from which a token was used, and removes the
// addresses of earlier tokens. A patch replaces the whole list, so it needs a lock on the version of that list. The
// patch is empty if there is nothing to add.
func cameFrom(record server.Record, from netip.Addr, at time.Time) (boot map[string]any, locked bool) {
	if !from.IsValid() || slices.Contains(record.Addresses, from) || len(record.Addresses) >= server.MaxAddresses {
		return map[string]any{}, false
	}
	token := tokenOf(record.Token.Hash)
	addresses := slices.DeleteFunc(slices.Clone(record.TokenAddresses), func(a bootstrapv1.TokenAddress) bool { return a.Token != token })
	addresses = append(addresses, bootstrapv1.TokenAddress{Address: from.String(), FirstUsedTime: metav1.MicroTime{Time: at}, Token: token})
	return map[string]any{"addresses": addresses}, true
}

// write applies the patch of status.boot that patchOf returns for a record. A patch of fields that another replica or
// the manager can write meanwhile has a lock on the version of the record. After a conflict, patchOf is called again
// with the current record.
func (b bootRecorder) write(ctx context.Context, record server.Record, patchOf func(server.Record) (boot map[string]any, locked bool)) error {
	return retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		boot, locked := patchOf(record)
		if len(boot) == 0 {
			return nil
		}
		version := ""
		if locked {
			version = record.Version
		}
		err := b.patch(ctx, record, version, boot)
		if !apierrors.IsConflict(err) {
			return err
		}
		now, readErr := liveRecords{b.client}.Get(ctx, record.NamespacedName)
		switch {
		case readErr != nil:
			return readErr
		case now == nil || now.UID != record.UID || !now.HasTokenOf(&record):
			return nil // the object was deleted, or has another token
		}
		record = *now
		return err
	})
}

// patch changes fields of status.boot. If a version is given, it fails unless the PoolbootConfig has that version.
func (b bootRecorder) patch(ctx context.Context, record server.Record, version string, boot map[string]any) error {
	object := map[string]any{"status": map[string]any{"boot": boot}}
	if version != "" {
		object["metadata"] = map[string]any{"resourceVersion": version}
	}
	patch, err := json.Marshal(object)
	if err != nil {
		return err
	}
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name}}
	return b.client.Status().Patch(ctx, config, client.RawPatch(types.MergePatchType, patch))
}
