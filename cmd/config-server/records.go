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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// records finds PoolbootConfigs by their name.
type records = kind[*bootstrapv1.PoolbootConfig, types.NamespacedName, server.Record]

func newRecords() *records {
	return newKind(&bootstrapv1.PoolbootConfig{}, client.ObjectKeyFromObject, withoutError(recordOf))
}

func recordOf(config *bootstrapv1.PoolbootConfig) server.Record {
	requests, boot, never := config.Status.Requests, config.Status.Boot, metav1.MicroTime{}
	prepared := meta.FindStatusCondition(config.Status.Conditions, bootstrapv1.BootPreparedCondition)
	token := record.TokenOf(config)
	addresses, oldAddresses := addressesOf(config, tokenHashPrefix(token.Hash))
	return server.Record{
		NamespacedName:            client.ObjectKeyFromObject(config),
		UID:                       config.UID,
		PointerID:                 config.Annotations[bootstrapv1.PointerIDAnnotation],
		Token:                     token,
		Rotating:                  record.IsRotationRequested(config),
		Version:                   config.ResourceVersion,
		FirstRequestedTime:        ptr.Deref(requests.FirstRequestedTime, never).Time,
		RequestedTime:             ptr.Deref(requests.RequestedTime, never).Time,
		AnsweredTime:              ptr.Deref(boot.AnsweredRequestTime, never).Time,
		ServedTime:                ptr.Deref(requests.ServedTime, never).Time,
		FailedTime:                requests.IgnitionFailure.ReportedTime.Time,
		RegistrationRequestedTime: ptr.Deref(requests.RegistrationRequestedTime, never).Time,
		RegisteredTime:            ptr.Deref(config.Status.Update.RegisteredTime, never).Time,
		Addresses:                 addresses,
		OldAddresses:              oldAddresses,
		TokenAddresses:            requests.Addresses,
		Bound:                     record.BindsTokenToAddresses(config),
		HostAddresses:             parseAddresses(config.Status.HostAddresses),
		Enrollment:                config.Spec.EnrollmentName(),
		EnrolledFrom:              config.Annotations[bootstrapv1.EnrolledFromAnnotation],
		CredentialID:              boot.CredentialID,
		UsedCredential:            config.Status.Certificate.CredentialID,
		PreparationFailed:         prepared != nil && prepared.Status == metav1.ConditionFalse,
		Pending:                   pendingMessage(prepared),
	}
}

// addressesOf returns the addresses from which a token was used, in order of first use, and the addresses of earlier
// tokens.
func addressesOf(config *bootstrapv1.PoolbootConfig, token string) (addresses, old []netip.Addr) {
	for _, recorded := range slices.SortedFunc(slices.Values(config.Status.Requests.Addresses), record.ByFirstUse) {
		address, err := netip.ParseAddr(recorded.Address)
		switch {
		case err != nil:
		case recorded.Token == token:
			addresses = append(addresses, address)
		default:
			old = append(old, address)
		}
	}
	return addresses, old
}

// parseAddresses returns the valid addresses of some texts.
func parseAddresses(texts []string) (addresses []netip.Addr) {
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// tokenHashPrefix returns the part of the hash of a token that distinguishes it from earlier tokens.
func tokenHashPrefix(sha256 string) string {
	return sha256[:min(len(sha256), bootstrapv1.TokenHashPrefixLength)]
}

// pendingMessage returns why the boot is not prepared, according to its condition.
func pendingMessage(prepared *metav1.Condition) string {
	if prepared == nil || prepared.Status == metav1.ConditionTrue {
		return ""
	}
	return fmt.Sprintf("%s: %s", prepared.Reason, prepared.Message)
}

// bootRecorder writes status.requests of PoolbootConfigs. A merge patch of one field does not conflict with writes to
// other fields, so only patches of fields that others write too have a lock.
type bootRecorder struct{ client client.Client }

func (b bootRecorder) RecordRequest(ctx context.Context, record server.Record, from netip.Addr, at time.Time) error {
	answered := record.AnsweredTime
	return b.write(ctx, record, func(record server.Record) (requests map[string]any, locked bool) {
		requests, locked = addressPatch(record, from, at)
		if !record.AnsweredTime.Equal(answered) {
			return requests, locked // what the host requested was prepared meanwhile
		}
		requests["requestedTime"] = metav1.MicroTime{Time: at}
		if record.IsFirstRequest() {
			requests["firstRequestedTime"], locked = requests["requestedTime"], true
		}
		return requests, locked
	})
}

func (b bootRecorder) RecordAddress(ctx context.Context, record server.Record, from netip.Addr, at time.Time) error {
	return b.write(ctx, record, func(record server.Record) (map[string]any, bool) { return addressPatch(record, from, at) })
}

func (b bootRecorder) RecordFailure(ctx context.Context, record server.Record, failure server.IgnitionFailure, at time.Time) error {
	report := map[string]any{"reportedTime": metav1.MicroTime{Time: at}, "stage": failure.Stage, "log": nil} // nil removes an earlier log
	if failure.Log != "" {
		report["log"] = failure.Log
	}
	return b.patch(ctx, record, "", map[string]any{"ignitionFailure": report})
}

func (b bootRecorder) RecordServed(ctx context.Context, record server.Record, at time.Time) error {
	return b.patch(ctx, record, "", map[string]any{"servedTime": metav1.MicroTime{Time: at}})
}

func (b bootRecorder) RecordRegistrationRequest(ctx context.Context, record server.Record, at time.Time) error {
	return b.patch(ctx, record, "", map[string]any{"registrationRequestedTime": metav1.MicroTime{Time: at}})
}

// addressPatch returns the patch of status.requests that adds the address from which a token was used, and removes the
// addresses of earlier tokens. A patch replaces the whole list, so it needs a lock on the version of that list. The
// patch is empty if there is nothing to add.
func addressPatch(record server.Record, from netip.Addr, at time.Time) (requests map[string]any, locked bool) {
	if !from.IsValid() || slices.Contains(record.Addresses, from) || len(record.Addresses) >= server.MaxAddresses {
		return map[string]any{}, false
	}
	token := tokenHashPrefix(record.Token.Hash)
	addresses := slices.DeleteFunc(slices.Clone(record.TokenAddresses), func(a bootstrapv1.TokenAddress) bool { return a.Token != token })
	addresses = append(addresses, bootstrapv1.TokenAddress{Address: from.String(), FirstUsedTime: metav1.MicroTime{Time: at}, Token: token})
	return map[string]any{"addresses": addresses}, true
}

// write applies the patch of status.requests that patchOf returns for a record. A patch of fields that another replica
// or the manager can write meanwhile has a lock on the version of the record. After a conflict, patchOf is called again
// with the current record.
func (b bootRecorder) write(ctx context.Context, record server.Record, patchOf func(server.Record) (requests map[string]any, locked bool)) error {
	return retry.OnError(retry.DefaultRetry, apierrors.IsConflict, func() error {
		requests, locked := patchOf(record)
		if len(requests) == 0 {
			return nil
		}
		version := ""
		if locked {
			version = record.Version
		}
		err := b.patch(ctx, record, version, requests)
		if !apierrors.IsConflict(err) {
			return err
		}
		config := &bootstrapv1.PoolbootConfig{}
		if getErr := b.client.Get(ctx, record.NamespacedName, config); getErr != nil {
			return client.IgnoreNotFound(getErr)
		}
		current := recordOf(config)
		if current.UID != record.UID || !current.HasSameToken(&record) {
			return nil // the object was deleted, or has another token
		}
		record = current
		return err
	})
}

// patch changes fields of status.requests. If a version is given, it fails unless the PoolbootConfig has that version.
func (b bootRecorder) patch(ctx context.Context, record server.Record, version string, requests map[string]any) error {
	object := map[string]any{"status": map[string]any{"requests": requests}}
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
