package join

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// What is on record of a join credential is in the status of its PoolbootConfig, which clusterctl move and a restore
// drop. It is read back here from the workload cluster, which has it as well.

// FindCredential returns the credential of an owner, named <namespace>/<name>, that lives the longest; false when none
// lives.
func FindCredential(ctx context.Context, w client.Reader, owner string) (found Credential, ok bool, err error) {
	tokens := &corev1.SecretList{}
	if err := w.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingFields{"type": string(bootstrapapi.SecretTypeBootstrapToken)}); err != nil {
		return Credential{}, false, fmt.Errorf("join credentials of PoolbootConfig %s: %w", owner, err)
	}
	for i := range tokens.Items {
		credential, whole := readCredential(&tokens.Items[i], owner)
		if whole && time.Now().Before(credential.Expires) && (!ok || credential.Expires.After(found.Expires)) {
			found, ok = credential, true
		}
	}
	return found, ok, nil
}

// FindGrant returns the certificate that a credential has got; nil when it has got none.
func FindGrant(ctx context.Context, w client.Reader, credentialID string) (*bootstrapv1.GrantedCertificate, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := w.List(ctx, requests, client.MatchingFields{"spec.signerName": certificatesv1.KubeAPIServerClientKubeletSignerName}); err != nil {
		return nil, fmt.Errorf("certificate signing requests of join credential %s: %w", credentialID, err)
	}
	var last *bootstrapv1.GrantedCertificate
	for i := range requests.Items {
		request := &requests.Items[i]
		if request.Spec.Username != bootstrapapi.BootstrapUserPrefix+credentialID {
			continue
		}
		for _, c := range request.Status.Conditions {
			key := PublicKeySHA256(request.Spec.Request)
			if c.Type == certificatesv1.CertificateApproved && key != "" && (last == nil || last.GrantedTime.Before(&c.LastUpdateTime)) {
				last = &bootstrapv1.GrantedCertificate{CredentialID: credentialID, PublicKeySHA256: key, GrantedTime: c.LastUpdateTime}
			}
		}
	}
	return last, nil
}

// PublicKeySHA256 returns the SHA-256, in hex, of the public key that a PEM certificate request is for; "" when it
// can't be read.
func PublicKeySHA256(request []byte) string {
	wanted, err := ParseCertificateRequest(request)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(wanted.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// ParseCertificateRequest reads a PEM certificate request.
func ParseCertificateRequest(raw []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("it is no PEM block of type CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
