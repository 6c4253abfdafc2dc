package workload

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

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
