package enrollment

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

// relocationDelay is how long a host must not have sent a request before a host with the same name and another address
// is assumed to be the same host. Its join credential has expired by then.
const relocationDelay = join.Lifetime

// verdict is the decision on a request.
type verdict int

const (
	// refuse refuses the request and reports why.
	refuse verdict = iota
	// admit admits the host under its name.
	admit
	// forget removes the request of a host that was already admitted.
	forget
	// relocate accepts a new address of an admitted host.
	relocate
	// wait keeps the request until the PoolbootConfig of an earlier host with the name is deleted, or until the
	// workload cluster can be read.
	wait
)

// facts are the input of a verdict on one request.
type facts struct {
	// namespace is the namespace of the Enrollment.
	namespace string
	name      string
	request   poolv1.EnrollmentRequest
	// spec is the spec of the Enrollment, and admitted are the names that it has admitted. tokenSHA256 is the hash of
	// the token in the Secret.
	spec        poolv1.EnrollmentSpec
	admitted    []string
	tokenSHA256 string
	// cluster has the names and addresses of the workload cluster.
	cluster access.Cluster
	// node is the Node with the name, nil if it does not exist or is unknown.
	node *corev1.Node
	// nodeUnknown is true if the Node could not be read.
	nodeUnknown bool
	// obstacle is why no host is admitted now, nil if hosts are admitted.
	obstacle *hostpool.Obstacle
	// config is the PoolbootConfig with the name, nil if there is none.
	config *bootstrapv1.PoolbootConfig
	// pointerID is the pointer id that the PoolbootConfig of this host has.
	pointerID string
	now       time.Time
}

// decideRequest decides a request, and returns why if it is refused.
func decideRequest(f facts) (verdict, string) {
	if f.tokenSHA256 == "" || f.request.TokenSHA256 != f.tokenSHA256 {
		return refuse, "the token is not the one in the Secret"
	}
	if !f.now.Before(f.spec.ExpirationTime.Time) {
		return refuse, "the token has expired"
	}
	if why := access.CheckName(f.spec.NamePattern, f.name); why != "" {
		return refuse, why
	}
	if err := f.cluster.CheckNodeName(f.name); err != nil {
		return refuse, err.Error()
	}
	if f.config != nil {
		return f.decideAdmitted()
	}
	switch {
	case f.obstacle != nil:
		return refuse, f.obstacle.Message
	case f.node != nil && !f.isLeftover():
		return refuse, fmt.Sprintf("Node %s already exists and was not pre-registered for this host: use another name for the host, "+
			"or delete the Node to install its host again", f.node.Name)
	case !slices.Contains(f.admitted, f.name) && len(f.admitted) >= int(f.spec.MaxUses):
		return refuse, usedUp(f.spec)
	case f.nodeUnknown:
		return wait, ""
	}
	return admit, ""
}

// isLeftover reports whether the Node was pre-registered for a host with this name that never joined.
func (f facts) isLeftover() bool {
	owner, ok := record.ConfigOfNode(f.node)
	return ok && owner == types.NamespacedName{Namespace: f.namespace, Name: f.name} && !record.HasKubelet(f.node)
}

// decideAdmitted decides the request of a host whose name already has a PoolbootConfig.
func (f facts) decideAdmitted() (verdict, string) {
	if f.config.Spec.Enrolled() == nil || f.config.Annotations[bootstrapv1.PointerIDAnnotation] != f.pointerID {
		return refuse, fmt.Sprintf("PoolbootConfig %s, which has the name, belongs to another host: use another name for this host", f.config.Name)
	}
	address := f.config.Annotations[bootstrapv1.EnrolledFromAnnotation]
	switch {
	case !f.config.DeletionTimestamp.IsZero():
		return wait, ""
	case record.HasJoined(f.config):
		return refuse, fmt.Sprintf("a host with this name has joined from %s: to install it again, delete its Node and PoolbootConfig %s", address, f.config.Name)
	case record.TokenOf(f.config).Hash != f.tokenSHA256:
		return refuse, fmt.Sprintf("a host with this name was admitted with an earlier token: delete PoolbootConfig %s", f.config.Name)
	case address == f.request.Address:
		return forget, ""
	case f.now.Sub(lastContact(f.config, f.now)) >= relocationDelay:
		return relocate, ""
	}
	return refuse, fmt.Sprintf("another host with this name was admitted from %s: use another name for this host; "+
		"if it is the same host with a new address, delete PoolbootConfig %s", address, f.config.Name)
}

// lastContact returns when the host of a PoolbootConfig last sent a request. It ignores a time far in the future, which
// is from a wrong clock.
func lastContact(config *bootstrapv1.PoolbootConfig, now time.Time) time.Time {
	last := config.CreationTimestamp.Time
	for _, at := range []*metav1.MicroTime{config.Status.Requests.RequestedTime, config.Status.Requests.ServedTime} {
		if at != nil && at.After(last) && at.Time.Before(now.Add(relocationDelay)) {
			last = at.Time
		}
	}
	return last
}
