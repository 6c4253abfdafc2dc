package join

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AutoApprovedError says that the workload cluster approves the certificate requests of join credentials by itself, for
// a Node of any name.
type AutoApprovedError struct {
	// Grant is the API server's own account of what allows it; it names the binding when RBAC does.
	Grant string
}

func (e *AutoApprovedError) Error() string {
	grant := e.Grant
	if grant == "" {
		grant = "its authorizer allows it"
	}
	return fmt.Sprintf("Kubernetes approves certificate requests of bootstrap tokens for any Node name (%s), so a stolen join credential could become any Node: "+
		"bind the right to create certificatesigningrequests/nodeclient only to groups of tokens that need it, such as %s, or to none",
		grant, bootstrapapi.BootstrapDefaultGroup+":kubeadm:default-node-token")
}

// CheckApproval asks the API server whether kube-controller-manager would approve certificate requests made with a join
// credential, before one is made. The error is an AutoApprovedError if it would, as in clusters that were set up by
// Kubernetes' guide to TLS bootstrapping: every bootstrap token is in the group that its ClusterRoleBinding names.
//
// It asks as the approver does (kubernetes, pkg/controller/certificates/approver). selfnodeclient does not matter: it
// is for users who ask for their own name, and the user of a bootstrap token is no Node.
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
		return fmt.Errorf("whether certificate requests of join credentials are approved: %w", err)
	}
	if review.Status.Allowed {
		return &AutoApprovedError{Grant: review.Status.Reason}
	}
	return nil
}
