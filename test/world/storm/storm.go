// Package storm boots many simulated hosts of a MachineDeployment simultaneously and judges the versions of their
// Nodes. An adversary acts as the Machine Config Operator's node controller on Nodes outside their pool. The hosts have
// no disk, kubelet or container runtime: they send the requests of a real host for configuration, certificate and
// registration. They boot with Poolboot, or with Cluster API's kubeadm bootstrap provider and Cluster API's label sync.
// The package is for ginkgo suites and benchmarks: errors in the setup fail them.
package storm

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// role is the role of the custom pool of all hosts of a storm.
const role = "infra"

// setUpTimeout is the timeout for the inspection of hosts and the connection to the Cluster, before the measurement.
const setUpTimeout = 10 * time.Minute

// Result is the result of a storm. Times are since the creation of the MachineDeployment.
type Result struct {
	// Machines is when the last Machine existed, DataSecrets when the last data Secret existed.
	Machines, DataSecrets time.Duration
	// SwitchedOn is when the last host was provisioned and all hosts were powered on.
	SwitchedOn time.Duration
	// Registered is when the last kubelet had registered, InPool when the last Node was Ready in its pool, Ended when
	// the token, join credential and overlay of the last boot were deleted, with Poolboot only.
	Registered, InPool, Ended time.Duration
	// Nodes is the adversary's verdict.
	Nodes Verdict
	// Started is when the MachineDeployment was created.
	Started time.Time
	// StopError is the error of stopping the provider, for example of a manager with long queues. The measurements are
	// valid nevertheless.
	StopError error
}

// Run boots n hosts in a new namespace and waits until all their Nodes are Ready in their pool. hardware must be the
// site's hardware. With an error it also returns the measurements so far.
func Run(ctx context.Context, s *site.Site, hardware *Hardware, provider Provider, n int) (result Result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := tenant.NewPersistent(ctx, s, n)
	boot, stop, err := provider.start(ctx, s, t)
	if err != nil {
		return Result{}, err
	}
	defer func() { result.StopError = stop() }()
	hosts := hardware.storm(ctx, t.Namespace, n, boot)
	defer hosts.wait()
	defer cancel() // before hosts.wait
	ctx, end := hosts.whileRunning(ctx)
	defer end()
	settle(ctx, s, t, n)

	of := func(what string) *milestone { return newMilestone(what, n) }
	machines, secrets, registered, inPool := of("Machines"), of("data Secrets"), of("registered Nodes"), of("Nodes Ready in their pool")
	if err := errors.Join(
		site.Follow(ctx, s.ManagementClient, &clusterv1.MachineList{}, func(_ watch.EventType, m *clusterv1.Machine) {
			machines.reach(m.Name, m.Namespace == t.Namespace)
		}),
		site.Follow(ctx, s.ManagementClient, &corev1.SecretList{}, func(_ watch.EventType, s *corev1.Secret) {
			owner := metav1.GetControllerOf(s)
			secrets.reach(s.Name, s.Namespace == t.Namespace && owner != nil && owner.Kind == provider.configKind)
		}),
	); err != nil {
		return Result{}, err
	}
	adversary, err := watchAsAdversary(ctx, s.WorkloadClient, func(node *corev1.Node) bool {
		return hosts.own(node.Name)
	}, func(node *corev1.Node) {
		hasKubelet := node.Status.NodeInfo.KubeletVersion != ""
		registered.reach(node.Name, hasKubelet)
		inPool.reach(node.Name, hasKubelet && util.IsNodeReady(node) && !outside(node))
	})
	if err != nil {
		return Result{}, err
	}

	result.Started = time.Now()
	steps := []step{
		{machines, &result.Machines}, {secrets, &result.DataSecrets}, {hosts.provisioned, &result.SwitchedOn},
		{registered, &result.Registered}, {inPool, &result.InPool},
	}
	if provider.followEnd != nil {
		ended := of("ended boots")
		if err := provider.followEnd(ctx, s, t, ended); err != nil {
			return result, err
		}
		steps = append(steps, step{ended, &result.Ended})
	}
	t.Deploy(ctx, tenant.Deployment{Name: role, Replicas: int32(n), Labels: map[string]string{poolv1.NodeRoleLabelPrefix + role: ""}, Bootstrap: provider.template()})
	for _, step := range steps {
		at, err := step.milestone.wait(ctx)
		if err != nil {
			return result, errors.Join(err, hosts.joinErrors())
		}
		*step.took = at.Sub(result.Started)
	}
	result.Nodes, err = adversary.verdict()
	return result, err
}

// step is a milestone and the result field for its time.
type step struct {
	milestone *milestone
	took      *time.Duration
}

// settle waits until all hosts are available and Cluster API has connected to the Cluster, which is not measured.
func settle(ctx context.Context, s *site.Site, t *tenant.Tenant, n int) {
	EventuallyWithOffset(1, func(g Gomega) {
		g.Expect(s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), t.Cluster)).To(Succeed())
		g.Expect(conditions.IsTrue(t.Cluster, clusterv1.ClusterRemoteConnectionProbeCondition)).To(BeTrue(), "the Cluster is connected to")
		var hosts bmov1alpha1.BareMetalHostList
		g.Expect(s.ManagementClient.List(ctx, &hosts, client.InNamespace(t.Namespace))).To(Succeed())
		available := 0
		for i := range hosts.Items {
			if hosts.Items[i].Status.Provisioning.State == bmov1alpha1.StateAvailable {
				available++
			}
		}
		g.Expect(available).To(Equal(n), "hosts are available")
	}).WithContext(ctx).WithTimeout(setUpTimeout).WithPolling(time.Second).Should(Succeed())
}

// String formats a result in one line.
func (r Result) String() string {
	text := ""
	for _, step := range []struct {
		what string
		took time.Duration
	}{
		{"Machines", r.Machines}, {"data Secrets", r.DataSecrets}, {"switched on", r.SwitchedOn},
		{"registered", r.Registered}, {"in pool", r.InPool}, {"ended", r.Ended},
	} {
		if step.took > 0 {
			text += fmt.Sprintf("%s %.1f s, ", step.what, step.took.Seconds())
		}
	}
	return text + r.Nodes.String()
}
