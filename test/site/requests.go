package site

import (
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/controlplane"
)

// RequestKind is what kind of request one of Poolboot's programs made.
type RequestKind struct {
	// Cluster is the name of the control plane that was asked, Program manager or config-server.
	Cluster, Program string
	// Verb and Resource are what the request was for; a subresource follows its resource and a slash.
	Verb, Resource string
}

// Requests counts what Poolboot's two programs asked of both API servers since a moment, as the API servers' audit logs have
// it. Watches and their first lists are left out: they are there once, however many machines.
func (s *Site) Requests(since time.Time) (map[RequestKind]int, error) {
	count := map[RequestKind]int{}
	for _, cluster := range []*controlplane.ControlPlane{s.Management, s.Workload} {
		err := cluster.EachRequest(func(r controlplane.Request) {
			program, is := poolbootProgram(r)
			if !is || r.Received.Before(since) || r.Object.Resource == "" || r.Verb == "watch" || r.Verb == "list" {
				return
			}
			resource := strings.TrimSuffix(r.Object.Resource+"/"+r.Object.Subresource, "/")
			count[RequestKind{cluster.Name, program, r.Verb, resource}]++
		})
		if err != nil {
			return nil, err
		}
	}
	return count, nil
}

// poolbootProgram names the program of Poolboot that a request came from. In the workload cluster the manager has the
// rights of Cluster API's kubeconfig, so there only its user agent tells: the cluster cache puts the program's name first.
func poolbootProgram(r controlplane.Request) (string, bool) {
	if program, is := strings.CutPrefix(r.User.Name, "system:serviceaccount:poolboot-system:poolboot-"); is {
		return program, true
	}
	return "manager", strings.HasPrefix(r.UserAgent, "manager/")
}
