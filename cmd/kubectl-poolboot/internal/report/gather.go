package report

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// fleet is what was read.
type fleet struct {
	namespace   string // "" for all
	pools       []poolv1.MachineConfigPool
	configs     []bootstrapv1.PoolbootConfig
	enrollments []poolv1.Enrollment
	machines    map[client.ObjectKey]*clusterv1.Machine
	// nodes are those of each workload cluster, by name.
	nodes        map[client.ObjectKey]map[string]*corev1.Node
	certificates []expiration
	// unread says what could not be read.
	unread []string
}

// maxClusters is how many workload clusters are read at a time.
const maxClusters = 10

// readFleet reads a namespace, or all for "". Only the pools and the PoolbootConfigs must be readable.
func readFleet(ctx context.Context, cluster *input.Cluster, namespace string) (*fleet, error) {
	f := &fleet{namespace: namespace, machines: map[client.ObjectKey]*clusterv1.Machine{}, nodes: map[client.ObjectKey]map[string]*corev1.Node{}}
	pools, configs := &poolv1.MachineConfigPoolList{}, &bootstrapv1.PoolbootConfigList{}
	enrollments, machines := &poolv1.EnrollmentList{}, &clusterv1.MachineList{}
	for _, of := range []struct {
		kind     string
		list     client.ObjectList
		required bool
	}{{"MachineConfigPools", pools, true}, {"PoolbootConfigs", configs, true}, {"Enrollments", enrollments, false}, {"Machines", machines, false}} {
		err := cluster.List(ctx, of.list, client.InNamespace(namespace))
		if err != nil && of.required {
			return nil, fmt.Errorf("list %s: %w", of.kind, err)
		}
		if err != nil {
			f.unread = append(f.unread, fmt.Sprintf("list %s: %s", of.kind, err))
		}
	}
	f.pools, f.configs, f.enrollments = pools.Items, configs.Items, enrollments.Items
	for i := range machines.Items {
		f.machines[client.ObjectKeyFromObject(&machines.Items[i])] = &machines.Items[i]
	}
	f.readClusters(ctx, cluster)
	slices.Sort(f.unread)
	return f, nil
}

// readClusters reads the Nodes of the workload clusters, and the certificates in their kubeconfigs.
func (f *fleet) readClusters(ctx context.Context, management *input.Cluster) {
	clusters := map[client.ObjectKey]bool{}
	for i := range f.pools {
		clusters[client.ObjectKey{Namespace: f.pools[i].Namespace, Name: f.pools[i].Spec.ClusterName}] = true
	}
	for i := range f.configs {
		clusters[clusterOf(&f.configs[i])] = true
	}
	var mu sync.Mutex
	var reads errgroup.Group
	reads.SetLimit(maxClusters)
	for key := range clusters {
		reads.Go(func() error {
			nodes := &corev1.NodeList{}
			workload, err := management.Workload(ctx, key)
			if err == nil {
				err = workload.List(ctx, nodes)
			}
			stored, errStored := kubeconfig.OfCluster(ctx, management, key)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.unread = append(f.unread, fmt.Sprintf("the Nodes of Cluster %s, so drift and labels of Nodes are missing: %s", key, err))
			}
			f.nodes[key] = map[string]*corev1.Node{}
			for i := range nodes.Items {
				f.nodes[key][nodes.Items[i].Name] = &nodes.Items[i]
			}
			if errStored == nil {
				secret := "in Secret " + kubeconfig.SecretOf(key).String()
				f.addCertificate("Certificate of the client "+secret, stored.ClientCertificate)
				f.addCertificate("Certificate of the CA "+secret, stored.CA)
			}
			return nil
		})
	}
	_ = reads.Wait() // no function returns an error
}

func clusterOf(config *bootstrapv1.PoolbootConfig) client.ObjectKey {
	return client.ObjectKey{Namespace: config.Namespace, Name: record.ClusterName(config)}
}

// addCertificate adds the certificate of a bundle (PEM) that expires first, if it has one.
func (f *fleet) addCertificate(what string, bundle []byte) {
	var first time.Time
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && (first.IsZero() || c.NotAfter.Before(first)) {
			first = c.NotAfter
		}
	}
	if !first.IsZero() {
		f.certificates = append(f.certificates, expiration{What: what, time: first})
	}
}
