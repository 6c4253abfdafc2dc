package machineconfigpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// fixture is a management cluster with one Cluster, c1, and the reconciler under test.
type fixture struct {
	client.Client
	reconciler *Reconciler
	events     *events.FakeRecorder
	writes     int
	// hidesRendered hides rendered configs from the reconciler's cache.
	hidesRendered bool
	// stalePool is an earlier version of a pool in the reconciler's cache.
	stalePool *poolv1.MachineConfigPool
	// staleConfigs is an earlier list of PoolbootConfigs in the reconciler's cache.
	staleConfigs *bootstrapv1.PoolbootConfigList
	// crash stops the reconciler at a write: before the first deletion or status patch for which it returns true.
	crash func(verb string) bool
	// onPatch is called after the reconciler has read, and before its next patch of a status.
	onPatch func()
}

const namespace = "site"

var errCrash = errors.New("connection reset")

func newFixture(objects ...client.Object) *fixture {
	s := &fixture{events: events.NewFakeRecorder(100), crash: func(string) bool { return false }}
	s.Client = controllertest.NewClientBuilder(objects...).
		WithStatusSubresource(&poolv1.MachineConfigPool{}, &bootstrapv1.PoolbootConfig{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				s.writes++
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if config, ok := o.(*poolv1.MachineConfig); ok { // as an API server does
					config.Generation++
				}
				return c.Update(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if s.crash("delete") {
					return errCrash
				}
				return c.Delete(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				s.writes++
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				s.writes++
				if s.crash("patch status") {
					return errCrash
				}
				if s.onPatch != nil {
					s.onPatch()
				}
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
	cached := interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if p, ok := o.(*poolv1.MachineConfigPool); ok && s.stalePool != nil {
				s.stalePool.DeepCopyInto(p)
				return nil
			}
			if s.hidesRendered && strings.HasPrefix(key.Name, poolv1.RenderedNamePrefix) {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if configs, ok := list.(*bootstrapv1.PoolbootConfigList); ok && s.staleConfigs != nil {
				s.staleConfigs.DeepCopyInto(configs)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
	s.reconciler = &Reconciler{Client: cached, APIReader: s.Client, Recorder: s.events, OverlayNamespace: "poolboot-system", RenderedHistory: 5}
	return s
}

// reconcile reconciles pools and returns the last one.
func (s *fixture) reconcile(names ...string) *poolv1.MachineConfigPool {
	GinkgoHelper()
	for _, name := range names {
		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		Expect(err).NotTo(HaveOccurred())
	}
	return s.pool(names[len(names)-1])
}

func (s *fixture) pool(name string) *poolv1.MachineConfigPool {
	GinkgoHelper()
	p := &poolv1.MachineConfigPool{}
	Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: name}, p)).To(Succeed())
	return p
}

// rendered returns the rendered config that a pool hands out.
func (s *fixture) rendered(p *poolv1.MachineConfigPool) *poolv1.MachineConfig {
	GinkgoHelper()
	Expect(p.Status.Configuration).NotTo(BeZero())
	config := &poolv1.MachineConfig{}
	Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: p.Status.Configuration.Name}, config)).To(Succeed())
	return config
}

// set writes the content of a file into a MachineConfig.
func (s *fixture) set(config *poolv1.MachineConfig, content string) {
	GinkgoHelper()
	Expect(s.Get(ctx(), client.ObjectKeyFromObject(config), config)).To(Succeed())
	config.Spec.Config = file("/etc/"+config.Name, content)
	Expect(s.Update(ctx(), config)).To(Succeed())
}

func ctx() context.Context { return context.Background() }

func cluster() *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: namespace, UID: "uid-c1"}}
}

// newPool returns a pool of the Cluster c1 that selects the MachineConfigs labeled role=<role>.
func newPool(name, role string, age time.Duration) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: types.UID("uid-" + name), Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-age)),
		},
		Spec: poolv1.MachineConfigPoolSpec{
			ClusterName: "c1", PoolRole: role,
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}},
		},
	}
}

// config returns a MachineConfig labeled role=<role> that writes /etc/<name>.
func config(name, role, content string) *poolv1.MachineConfig {
	return &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"role": role}},
		Spec:       poolv1.MachineConfigSpec{Config: file("/etc/"+name, content)},
	}
}

func file(path, content string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"contents":{"source":"data:,%s"}}]}}`, path, content)}
}

// machine returns the PoolbootConfig of a Machine of c1 whose recorded pool has this role.
func machine(name, role, configuration string, inPool bool) *bootstrapv1.PoolbootConfig {
	c := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: "c1"}},
		Status:     bootstrapv1.PoolbootConfigStatus{PoolRole: role, Boot: bootstrapv1.BootStatus{ServedConfiguration: bootstrapv1.ConfigurationReference{Name: configuration}}},
	}
	if inPool {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.NodeReadyInPoolReason,
		})
	}
	return c
}

// withProblem sets a condition of a Machine's PoolbootConfig to False.
func withProblem(c *bootstrapv1.PoolbootConfig, kind, reason, message string) *bootstrapv1.PoolbootConfig {
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message})
	return c
}

// joined marks a Machine as one whose kubelet has been Ready in its pool.
func joined(c *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked))
	return c
}

// pause sets spec.paused of the pool infra.
func (s *fixture) pause(paused bool) {
	GinkgoHelper()
	p := s.pool("infra")
	p.Spec.Paused = new(paused)
	Expect(s.Update(ctx(), p)).To(Succeed())
}

// becomes sets the condition Updated of a host, and what the host runs if it is done.
func (s *fixture) becomes(name, reason string) *poolv1.MachineConfigPool {
	GinkgoHelper()
	c := follower(name, "")
	Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
	setPhase(c, reason)
	if reason == bootstrapv1.UpdateDoneReason {
		c.Status.Boot.ServedConfiguration.Name = s.pool("infra").Status.Configuration.Name
	}
	Expect(s.Status().Update(ctx(), c)).To(Succeed())
	return s.reconcile("infra")
}

// complete has hosts run what the pool hands out, in the revision that they were told.
func (s *fixture) complete(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		c := follower(name, "")
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(c), c)).To(Succeed())
		c.Status.Update.RunningRevision = c.Status.Update.DesiredRevision
		Expect(s.Status().Update(ctx(), c)).To(Succeed())
		s.becomes(name, bootstrapv1.UpdateDoneReason)
	}
}
