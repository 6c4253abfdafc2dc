package join

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// AutoApprovedError reports that the workload cluster automatically approves the certificate signing requests of join
// credentials, for any Node name.
type AutoApprovedError struct {
	// Grant is the reason that the API server reports. With RBAC, it names the binding.
	Grant string
}

func (e *AutoApprovedError) Error() string {
	grant := e.Grant
	if grant == "" {
		grant = "its authorizer allows it"
	}
	return fmt.Sprintf("Kubernetes approves certificate requests of bootstrap tokens for any Node name (%s), so a client with a stolen join credential could impersonate any Node: "+
		"bind the permission to create certificatesigningrequests/nodeclient only to the token groups that need it, such as %s, or to no group",
		grant, bootstrapapi.BootstrapDefaultGroup+":kubeadm:default-node-token")
}

// Reason returns the reason of the condition that reports the error.
func (e *AutoApprovedError) Reason() string { return bootstrapv1.CertificatesAutoApprovedReason }

// CheckApproval checks whether kube-controller-manager would approve the certificate signing requests of a join
// credential, before the credential is created. If it would, the error is an *AutoApprovedError. This is the case in
// clusters that were set up with the TLS bootstrapping guide of Kubernetes: its ClusterRoleBinding names the group of
// all bootstrap tokens.
//
// The SubjectAccessReview is the same as that of the approver (kubernetes, pkg/controller/certificates/approver). The
// subresource selfnodeclient is not checked: it is for clients that request a certificate for their own user name, and
// the user of a bootstrap token is not a Node.
func CheckApproval(ctx context.Context, w client.Client) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		// No binding can name the user of a credential that does not exist yet.
		User:   bootstrapapi.BootstrapUserPrefix + "000000",
		Groups: []string{bootstrapapi.BootstrapDefaultGroup, Group, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: certificatesv1.GroupName, Version: "*", Resource: "certificatesigningrequests", Subresource: "nodeclient", Verb: "create",
		},
	}}
	if err := w.Create(ctx, review); err != nil {
		return fmt.Errorf("check whether certificate requests of join credentials are approved automatically: %w", err)
	}
	if review.Status.Allowed {
		return &AutoApprovedError{Grant: review.Status.Reason}
	}
	return nil
}
