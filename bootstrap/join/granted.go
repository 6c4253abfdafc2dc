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

// The record of a join credential is in the status of the PoolbootConfig, which clusterctl move and a restored backup
// do not keep. The functions below find the same data in the workload cluster.

// FindCredential returns the valid credential of an owner that expires last, and false if there is none. owner is the
// PoolbootConfig, as <namespace>/<name>.
func FindCredential(ctx context.Context, w client.Reader, owner string) (found Credential, ok bool, err error) {
	tokens := &corev1.SecretList{}
	if err := w.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingFields{"type": string(bootstrapapi.SecretTypeBootstrapToken)}); err != nil {
		return Credential{}, false, fmt.Errorf("join credentials of PoolbootConfig %s: %w", owner, err)
	}
	for i := range tokens.Items {
		credential, valid := readCredential(&tokens.Items[i], owner)
		if valid && time.Now().Before(credential.Expires) && (!ok || credential.Expires.After(found.Expires)) {
			found, ok = credential, true
		}
	}
	return found, ok, nil
}

// FindGrant returns the last certificate that was granted to a credential, and nil if there is none.
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

// PublicKeySHA256 returns the SHA-256 sum, in hexadecimal, of the public key in a PEM certificate signing request. It
// returns "" if the request cannot be read.
func PublicKeySHA256(request []byte) string {
	parsed, err := ParseCertificateRequest(request)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(parsed.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// ParseCertificateRequest parses a PEM certificate signing request.
func ParseCertificateRequest(raw []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("it is not a PEM block of type CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
