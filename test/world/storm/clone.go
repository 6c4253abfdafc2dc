package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// cloneWorkers is how many hosts are cloned at a time.
const cloneWorkers = 16

// machineObjects are the objects of one Machine and its host.
type machineObjects struct {
	machine       clusterv1.Machine
	config        bootstrapv1.PoolbootConfig
	secret        corev1.Secret
	metal3Machine infrav1.Metal3Machine
	host          bmov1alpha1.BareMetalHost
	bmc           corev1.Secret
	hardware      bmov1alpha1.HardwareData
	node          corev1.Node
}

// readMachine reads the objects of a Machine.
func readMachine(ctx context.Context, s *site.Site, namespace, name string) (m machineObjects, err error) {
	get := func(object client.Object, name string) {
		if err == nil {
			err = s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
		}
	}
	get(&m.machine, name)
	get(&m.config, name)
	get(&m.secret, name)
	get(&m.metal3Machine, name)
	get(&m.host, m.config.Status.HostRef.Name)
	get(&m.bmc, m.host.Spec.BMC.CredentialsName)
	get(&m.hardware, m.config.Status.HostRef.Name)
	if err == nil {
		err = s.WorkloadClient.Get(ctx, client.ObjectKey{Name: m.config.Status.NodeRef.Name}, &m.node)
	}
	return m, err
}

// isSettled reports an error while a controller has work with a Machine that has booted.
func (m *machineObjects) isSettled() error {
	switch {
	case !m.machine.Status.NodeRef.IsDefined() || m.machine.Status.Phase != string(clusterv1.MachinePhaseRunning):
		return fmt.Errorf("the Machine %s has no Node yet: phase %s", m.machine.Name, m.machine.Status.Phase)
	case !conditions.IsTrue(&m.metal3Machine, clusterv1.ReadyCondition):
		return fmt.Errorf("the Metal3Machine %s is not Ready", m.machine.Name)
	case len(m.node.Spec.Taints) > 0:
		return fmt.Errorf("the Node %s has taints: %v", m.node.Name, m.node.Spec.Taints)
	case m.node.Labels[corev1.LabelHostname] == "" || !conditions.IsTrue(&m.config, bootstrapv1.UpdatedCondition):
		return fmt.Errorf("the Node %s is not up to date", m.node.Name)
	}
	return nil
}

// clone writes the objects of n more Machines of a MachineDeployment, each as the first one's are after its boot, and
// returns their kubelets. A storm of thousands takes hours on a small machine, mostly because Cluster API and Metal3
// create their Machines. The controllers do not run meanwhile, and then find Machines that have booted. What Poolboot
// writes for an update is not cloned, but written by Poolboot.
func (f *Fleet) clone(ctx context.Context, deployment *clusterv1.MachineDeployment, first *kubelet, n int) ([]*kubelet, error) {
	original, err := readMachine(ctx, f.site, f.Namespace, f.First)
	if err != nil {
		return nil, err
	}
	set := &clusterv1.MachineSet{}
	if err := f.site.ManagementClient.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: metav1.GetControllerOf(&original.machine).Name}, set); err != nil {
		return nil, err
	}
	kubelets := make([]*kubelet, n)
	return kubelets, f.site.WithoutControllers(ctx, func() error {
		work, workCtx := errgroup.WithContext(ctx)
		work.SetLimit(cloneWorkers)
		for i := range n {
			work.Go(func() (err error) {
				c := cloner{site: f.site, original: &original, name: fmt.Sprintf("%s-c%04d", set.Name, i+1), host: f.HostName(i + 1)}
				kubelets[i], err = c.clone(workCtx, first)
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
		f.Scale(ctx, deployment, int32(n+1))
		scaled := set.DeepCopy()
		scaled.Spec.Replicas = ptr.To(int32(n + 1))
		return f.site.ManagementClient.Patch(ctx, scaled, client.MergeFrom(set))
	})
}

// cloner clones one Machine.
type cloner struct {
	site       *site.Site
	original   *machineObjects
	name, host string
	// uids has the UIDs of the original's objects and those of the clone's so far.
	uids []string
}

func (c *cloner) clone(ctx context.Context, first *kubelet) (*kubelet, error) {
	var m machineObjects
	o, management := c.original, c.site.ManagementClient

	if err := c.create(ctx, management, &o.host, &m.host, func() {}); err != nil {
		return nil, err
	}
	if err := c.create(ctx, management, &o.machine, &m.machine, func() {}); err != nil {
		return nil, err
	}
	if err := c.create(ctx, c.site.WorkloadClient, &o.node, &m.node, func() { withoutUpdate(&m.node) }); err != nil {
		return nil, err
	}
	if err := c.create(ctx, management, &o.config, &m.config, func() {
		m.config.Status.Update = bootstrapv1.PoolbootConfig{}.Status.Update
		conditions.Delete(&m.config, bootstrapv1.UpdatedCondition)
	}); err != nil {
		return nil, err
	}
	bound := m.config.DeepCopy()
	metav1.SetMetaDataAnnotation(&bound.ObjectMeta, bootstrapv1.TokenUIDAnnotation, string(m.config.UID))
	if err := management.Patch(ctx, bound, client.MergeFrom(&m.config)); err != nil {
		return nil, err
	}
	for _, object := range []struct{ from, to client.Object }{{&o.bmc, &m.bmc}, {&o.hardware, &m.hardware}, {&o.metal3Machine, &m.metal3Machine}, {&o.secret, &m.secret}} {
		if err := c.create(ctx, management, object.from, object.to, func() {}); err != nil {
			return nil, err
		}
	}

	own, err := c.site.Workload.UserConfig("system:node:"+c.host, "system:nodes")
	if err != nil {
		return nil, err
	}
	k := &kubelet{name: c.host, providerID: m.node.Spec.ProviderID, own: own, settings: first.settings}
	k.settings.Name, k.settings.PointerID = c.name, m.config.Annotations[bootstrapv1.PointerIDAnnotation]
	return k, nil
}

// withoutUpdate removes what Poolboot and the agent write to a Node for updates.
func withoutUpdate(node *corev1.Node) {
	for name := range node.Annotations {
		switch name {
		case poolv1.NodeConfigAnnotation, poolv1.NodeCurrentConfigAnnotation, agentv1.DesiredConfigAnnotation, poolv1.NodeAppliedTaintsAnnotation:
		default:
			if strings.HasPrefix(name, poolv1.GroupVersion.Group+"/") {
				delete(node.Annotations, name)
			}
		}
	}
}

// create creates the clone of an object, after a change, and writes its status.
func (c *cloner) create(ctx context.Context, to client.Client, original, clone client.Object, change func()) error {
	raw, err := json.Marshal(original)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(c.rename(raw), clone); err != nil {
		return err
	}
	clone.SetUID("")
	clone.SetResourceVersion("")
	clone.SetManagedFields(nil)
	change()
	wanted := clone.DeepCopyObject().(client.Object)
	if err := to.Create(ctx, clone); err != nil {
		return fmt.Errorf("clone %T %s: %w", clone, clone.GetName(), err)
	}
	c.uids = append(c.uids, string(original.GetUID()), string(clone.GetUID()))
	switch clone.(type) {
	case *corev1.Secret, *bmov1alpha1.HardwareData, *corev1.Node: // without a status, or created with it
		return nil
	}
	status, err := statusPatch(wanted)
	if err != nil {
		return err
	}
	if err := to.Status().Patch(ctx, clone, client.RawPatch(types.MergePatchType, c.rename(status))); err != nil {
		return fmt.Errorf("status of clone %T %s: %w", clone, clone.GetName(), err)
	}
	return nil
}

// rename replaces the names and UIDs of the original that are known so far.
func (c *cloner) rename(raw []byte) []byte {
	names := []string{c.original.machine.Name, c.name, c.original.host.Name, c.host}
	return []byte(strings.NewReplacer(append(names, c.uids...)...).Replace(string(raw)))
}

func statusPatch(object client.Object) ([]byte, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var parts struct {
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, err
	}
	if len(parts.Status) == 0 {
		return nil, errors.New("no status")
	}
	return json.Marshal(parts)
}

// CompareClone compares the objects of a cloned Machine with those of the one that has booted, without times, UIDs and
// names. They can differ for a while, until all controllers have seen the clone.
func (f *Fleet) CompareClone(ctx context.Context, first, clone string) error {
	var texts [2]map[string]string
	for i, name := range []string{first, clone} {
		m, err := readMachine(ctx, f.site, f.Namespace, name)
		if err != nil {
			return err
		}
		if texts[i], err = m.texts(); err != nil {
			return err
		}
	}
	if difference := cmp.Diff(texts[0], texts[1]); difference != "" {
		return fmt.Errorf("the clone %s is not as %s: %s", clone, first, difference)
	}
	return nil
}

// texts returns the objects of a Machine in JSON by their kind, without what is different for each Machine.
func (m *machineObjects) texts() (map[string]string, error) {
	same := []string{m.machine.Name, "NAME", m.host.Name, "HOST", m.config.Status.Update.DesiredRevision, "REVISION"}
	for kind, object := range m.objects() {
		same = append(same, string(object.GetUID()), "UID of "+kind)
	}
	texts := map[string]string{}
	for kind, object := range m.objects() {
		raw, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(strings.NewReplacer(same...).Replace(string(raw))), &fields); err != nil {
			return nil, err
		}
		delete(fields, "data") // of a Secret: the token, which was revoked
		withoutTimes(fields)
		text, err := json.MarshalIndent(fields, "", " ")
		if err != nil {
			return nil, err
		}
		texts[kind] = string(text)
	}
	return texts, nil
}

func (m *machineObjects) objects() map[string]client.Object {
	return map[string]client.Object{"Machine": &m.machine, "PoolbootConfig": &m.config, "Secret": &m.secret, "Metal3Machine": &m.metal3Machine,
		"BareMetalHost": &m.host, "Secret of the BMC": &m.bmc, "HardwareData": &m.hardware, "Node": &m.node}
}

// withoutTimes removes fields that depend on when and how often an object was written, and an annotation that depends
// on the number of Nodes.
func withoutTimes(value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			withoutTimes(item)
		}
	case map[string]any:
		for name, item := range value {
			switch {
			case strings.HasSuffix(name, "Time"), strings.HasSuffix(name, "Timestamp"), strings.HasSuffix(strings.ToLower(name), "generation"),
				slices.Contains([]string{"resourceVersion", "managedFields", "lastUpdated", "operationHistory", corev1.ObjectTTLAnnotationKey}, name):
				delete(value, name)
			default:
				withoutTimes(item)
			}
		}
	}
}
