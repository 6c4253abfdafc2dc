package site

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Step is a step in the boot of a Machine.
type Step string

// Steps in their usual order.
const (
	MachineCreated    Step = "created"
	DataSecretCreated Step = "data Secret"
	HostChosen        Step = "host chosen"
	BootRequested     Step = "boot request"
	NodePreRegistered Step = "Node pre-registered"
	ConfigServed      Step = "config served"
	KubeletRegistered Step = "kubelet registered"
	NodeReady         Step = "Ready"
	TokenRevoked      Step = "token revoked"
)

// Steps are all steps after MachineCreated.
var Steps = []Step{DataSecretCreated, HostChosen, BootRequested, NodePreRegistered, ConfigServed, KubeletRegistered, NodeReady, TokenRevoked}

// Timeline has the time of each step of all Machines, from watches on both clusters.
type Timeline struct {
	mu sync.Mutex
	// machines is keyed by the name of the PoolbootConfig, which is also the name of the Machine and of the data
	// Secret.
	machines map[string]map[Step]time.Time
	nodes    map[string]map[Step]time.Time
	nodeOf   map[string]string
}

// RecordTimeline records a timeline until ctx is done.
func RecordTimeline(ctx context.Context, management, workload client.WithWatch) (*Timeline, error) {
	t := &Timeline{machines: map[string]map[Step]time.Time{}, nodes: map[string]map[Step]time.Time{}, nodeOf: map[string]string{}}
	metal3Machines := &unstructured.UnstructuredList{}
	metal3Machines.SetGroupVersionKind(schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "Metal3MachineList"})
	for _, start := range []func() error{
		func() error { return Follow(ctx, management, &clusterv1.MachineList{}, t.sawMachine) },
		func() error { return Follow(ctx, management, &corev1.SecretList{}, t.sawSecret) },
		func() error { return Follow(ctx, management, metal3Machines, t.sawMetal3Machine) },
		func() error { return Follow(ctx, management, &bootstrapv1.PoolbootConfigList{}, t.sawConfig) },
		func() error { return Follow(ctx, workload, &corev1.NodeList{}, t.sawNode) },
	} {
		if err := start(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Of returns the times of a Machine's steps so far.
func (t *Timeline) Of(machine string) map[Step]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	steps := map[Step]time.Time{}
	maps.Copy(steps, t.machines[machine])
	maps.Copy(steps, t.nodes[t.nodeOf[machine]])
	return steps
}

// mark records the first time of a step. The caller holds t.mu.
func mark(of map[string]map[Step]time.Time, name string, step Step, when time.Time) {
	if of[name] == nil {
		of[name] = map[Step]time.Time{}
	}
	if of[name][step].IsZero() {
		of[name][step] = when
	}
}

func (t *Timeline) sawMachine(_ watch.EventType, m *clusterv1.Machine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mark(t.machines, m.Name, MachineCreated, time.Now())
}

func (t *Timeline) sawSecret(_ watch.EventType, s *corev1.Secret) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Type == clusterv1.ClusterSecretType {
		mark(t.machines, s.Name, DataSecretCreated, time.Now())
	}
}

func (t *Timeline) sawMetal3Machine(_ watch.EventType, m *unstructured.Unstructured) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.GetAnnotations()["metal3.io/BareMetalHost"] != "" {
		for _, owner := range m.GetOwnerReferences() {
			if owner.Kind == "Machine" {
				mark(t.machines, owner.Name, HostChosen, time.Now())
			}
		}
	}
}

func (t *Timeline) sawConfig(_ watch.EventType, c *bootstrapv1.PoolbootConfig) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Status.Requests.RequestedTime != nil {
		mark(t.machines, c.Name, BootRequested, c.Status.Requests.RequestedTime.Time)
	}
	if c.Status.Requests.ServedTime != nil {
		mark(t.machines, c.Name, ConfigServed, c.Status.Requests.ServedTime.Time)
	}
	if c.Status.NodeRef.IsDefined() {
		t.nodeOf[c.Name] = c.Status.NodeRef.Name
	}
	if record.HasJoined(c) {
		mark(t.machines, c.Name, TokenRevoked, time.Now())
	}
}

func (t *Timeline) sawNode(_ watch.EventType, n *corev1.Node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.Annotations[poolv1.NodeConfigAnnotation] != "" && n.Status.NodeInfo.KubeletVersion == "" {
		mark(t.nodes, n.Name, NodePreRegistered, time.Now())
	}
	if n.Status.NodeInfo.KubeletVersion != "" {
		mark(t.nodes, n.Name, KubeletRegistered, time.Now())
	}
	if util.IsNodeReady(n) {
		mark(t.nodes, n.Name, NodeReady, time.Now())
	}
}
