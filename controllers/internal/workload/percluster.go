package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// perCluster caches one result for each Cluster, so many hosts that boot at the same time cause one API request. The
// zero value is ready to use.
type perCluster[T any] struct {
	// Clock determines when results expire. Nil means the real clock.
	Clock clock.Clock

	once     sync.Once
	inFlight singleflight.Group
	results  *cache.Expiring // UID or key of the Cluster → T
}

// get returns the cached result of a Cluster, or calls read for a new one, which is cached for ttl(result). An error is
// not cached.
func (p *perCluster[T]) get(cluster any, ttl func(T) time.Duration, read func() (T, error)) (T, error) {
	p.once.Do(func() { p.results = cache.NewExpiringWithClock(cmp.Or[clock.Clock](p.Clock, clock.RealClock{})) })
	if cached, ok := p.results.Get(cluster); ok {
		return cached.(T), nil
	}
	shared, err, _ := p.inFlight.Do(fmt.Sprint(cluster), func() (any, error) {
		if cached, ok := p.results.Get(cluster); ok {
			return cached, nil
		}
		result, err := read()
		if err == nil {
			p.results.Set(cluster, result, ttl(result))
		}
		return result, err
	})
	return shared.(T), err
}

const (
	// approvedTTL is how long a positive result is cached: that the cluster does not approve requests automatically.
	approvedTTL = time.Minute
	// autoApprovedTTL is how long a negative result is cached. It is short, because an administrator is to correct the
	// cluster.
	autoApprovedTTL = 10 * time.Second
)

// ApprovalChecker checks, before a join credential is created, that the workload cluster does not automatically approve
// the certificate signing requests of the credential. It caches the results. The zero value is ready to use.
type ApprovalChecker struct {
	// perCluster contains a nil error for a cluster that leaves the approval to Poolboot.
	perCluster[*join.AutoApprovedError]
}

// Check returns the result of join.CheckApproval for the Cluster with this UID.
func (a *ApprovalChecker) Check(ctx context.Context, w client.Client, cluster types.UID) error {
	autoApproved, err := a.get(cluster, approvalTTL, func() (*join.AutoApprovedError, error) {
		err := join.CheckApproval(ctx, w)
		if autoApproved, ok := errors.AsType[*join.AutoApprovedError](err); ok {
			return autoApproved, nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	if autoApproved != nil {
		return autoApproved
	}
	return nil
}

func approvalTTL(autoApproved *join.AutoApprovedError) time.Duration {
	if autoApproved != nil {
		return autoApprovedTTL
	}
	return approvedTTL
}

const (
	// rulesTTL is how long the readiness rules of a cluster are cached. The node readiness controller itself adds the
	// taint of a newer rule.
	rulesTTL = 10 * time.Second
	// rulesPage is the number of rules that are read at once. The status of a rule lists Nodes, so rules can be large.
	rulesPage = 20
	// maxPages limits what is read. The owner of a workload cluster can create any number of rules.
	maxPages = 25
)

// ReadinessRules reads the readiness rules of workload clusters. It caches them. The zero value is ready to use.
type ReadinessRules struct {
	perCluster[[]registration.ReadinessRule]
}

// List returns the readiness rules of the Cluster with this UID, or none if the cluster has no such kind. Rules that
// are not valid are omitted, as the node readiness controller omits them.
func (r *ReadinessRules) List(ctx context.Context, w client.Client, cluster types.UID) ([]registration.ReadinessRule, error) {
	ttl := func([]registration.ReadinessRule) time.Duration { return rulesTTL }
	return r.get(cluster, ttl, func() (rules []registration.ReadinessRule, err error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(registration.ReadinessGroupVersion.WithKind(registration.ReadinessRuleKind + "List"))
		for range maxPages {
			err := w.List(ctx, list, client.Limit(rulesPage), client.Continue(list.GetContinue()))
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				return nil, nil
			}
			if err != nil {
				return nil, fmt.Errorf("list %ss: %w", registration.ReadinessRuleKind, err)
			}
			for i := range list.Items {
				if rule, err := registration.ParseReadinessRule(&list.Items[i]); err == nil {
					rules = append(rules, rule)
				}
			}
			if list.GetContinue() == "" {
				break
			}
		}
		return rules, nil
	})
}
