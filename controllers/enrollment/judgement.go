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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

// silence is how long a host must not have been heard of before one that asks for its name from another address is
// taken for the same: its credential has ended then.
const silence = join.Life

// verdict is what is to become of a request.
type verdict int

const (
	// refuse leaves the host without an answer, and says why.
	refuse verdict = iota
	// admit gives the host its name.
	admit
	// forget drops a request of a host that has been admitted.
	forget
	// relocate lets an admitted host go on from another address.
	relocate
	// wait leaves the request until the record of an earlier host of that name is gone, or the workload cluster can be
	// read.
	wait
)

// facts is all that a verdict on one request rests on.
type facts struct {
	// namespace is that of the enrollment.
	namespace string
	name      string
	request   poolv1.EnrollmentRequest
	// spec is the Enrollment's, with the names that were taken, and tokenSHA256 the hash of the token that the Secret
	// holds now.
	spec        poolv1.EnrollmentSpec
	tokenSHA256 string
	// cluster is what the cluster is known by that the host is to join.
	cluster identity.Cluster
	// node is the Node of that name; nil when it does not exist or is not known.
	node *corev1.Node
	// nodeUnknown says that it can't be told now whether the Node exists.
	nodeUnknown bool
	// closed is why nobody is admitted now; nil when the pool takes hosts.
	closed *hostpool.Obstacle
	// config is the PoolbootConfig of that name; nil when there is none.
	config *bootstrapv1.PoolbootConfig
	// pointerID is the one that the host's own PoolbootConfig has.
	pointerID string
	now       time.Time
}

// judge says what is to become of a request, and why when it is refused.
func judge(f facts) (verdict, string) {
	if f.tokenSHA256 == "" || f.request.TokenSHA256 != f.tokenSHA256 {
		return refuse, "the token is not the one in the Secret"
	}
	if !f.now.Before(f.spec.ExpirationTime.Time) {
		return refuse, "the token has expired"
	}
	if why := enroll.Allows(f.spec.NamePattern, f.name); why != "" {
		return refuse, why
	}
	if err := f.cluster.CheckNodeName(f.name); err != nil {
		return refuse, err.Error()
	}
	if f.config != nil {
		return f.judgeKnown()
	}
	switch {
	case f.closed != nil:
		return refuse, f.closed.Message
	case f.node != nil && !f.isLeftover():
		return refuse, fmt.Sprintf("Node %s exists already and was not pre-registered for this host: give the host another name, or delete the Node "+
			"if its host is to be installed anew", f.node.Name)
	case !slices.Contains(f.spec.Admitted, f.name) && len(f.spec.Admitted) >= int(f.spec.MaxUses):
		return refuse, usedUp(f.spec)
	case f.nodeUnknown:
		return wait, ""
	}
	return admit, ""
}

// isLeftover says whether the Node of the host's name was pre-registered for a host of that name which never joined.
func (f facts) isLeftover() bool {
	owner, found := record.ConfigOfNode(f.node)
	return found && owner == types.NamespacedName{Namespace: f.namespace, Name: f.name} && !record.HasKubelet(f.node)
}

// judgeKnown judges a host whose name a PoolbootConfig has already.
func (f facts) judgeKnown() (verdict, string) {
	enrolled := f.config.Spec.Enrolled()
	if enrolled == nil || f.config.Annotations[bootstrapv1.PointerIDAnnotation] != f.pointerID {
		return refuse, fmt.Sprintf("the name is that of PoolbootConfig %s, which is another host's", f.config.Name)
	}
	from := enrolled.Address
	switch {
	case !f.config.DeletionTimestamp.IsZero():
		return wait, ""
	case record.HasJoined(f.config):
		return refuse, fmt.Sprintf("a host of this name has joined, from %s: to install it anew, delete its Node and PoolbootConfig %s", from, f.config.Name)
	case record.TokenOf(f.config).Hash != f.tokenSHA256:
		return refuse, fmt.Sprintf("a host of this name came with an earlier token: delete PoolbootConfig %s", f.config.Name)
	case from == f.request.Address:
		return forget, ""
	case f.now.Sub(lastHeard(f.config, f.now)) >= silence:
		return relocate, ""
	}
	return refuse, fmt.Sprintf("another host asks under this name, from %s: give this one another name; if it is the same host with a new address, "+
		"delete PoolbootConfig %s", from, f.config.Name)
}

// lastHeard is when the host of a config was last heard of. A time that is far in the future is that of a clock which
// was wrong, and says nothing.
func lastHeard(config *bootstrapv1.PoolbootConfig, now time.Time) time.Time {
	last := config.CreationTimestamp.Time
	for _, at := range []*metav1.MicroTime{config.Status.Boot.RequestedTime, config.Status.Boot.ServedTime} {
		if at != nil && at.After(last) && at.Time.Before(now.Add(silence)) {
			last = at.Time
		}
	}
	return last
}
