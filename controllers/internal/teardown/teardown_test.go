package teardown_test

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/teardown"
)

// clusters are a management and a workload cluster with one boot, whose writes can fail.
type clusters struct {
	management, workload client.WithWatch
	config               *bootstrapv1.PoolbootConfig
	// writes are the names of the writes, in order. The write with the index failing fails, before it takes effect or,
	// if late is true, after.
	writes  []string
	failing int
	late    bool
}

const (
	overlays     = "poolboot-system"
	credentialID = "abcdef"
	nodeName     = "edge-7"
)

var errBroken = errors.New("broken")

func newClusters() *clusters {
	scheme := runtime.NewScheme()
	Expect(corev1.AddToScheme(scheme)).To(Succeed())
	Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
	c := &clusters{failing: -1, config: &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: nodeName, UID: "u-1", Annotations: map[string]string{bootstrapv1.TokenHashAnnotation: "00"}}}}
	write := func(name string, do func() error) error {
		c.writes = append(c.writes, name)
		if len(c.writes)-1 != c.failing {
			return do()
		}
		if c.late {
			Expect(do()).To(Succeed())
		}
		return errBroken
	}
	record := interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return write("patch "+o.GetName(), func() error { return w.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete "+o.GetName(), func() error { return w.Delete(ctx, o, opts...) })
		},
	}
	overlay := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: overlays, Name: "overlay-u-1"}}
	assignment := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: overlays, Name: "assignment-u-1"}}
	credential := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + credentialID}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	c.management = fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.config, overlay, assignment).WithInterceptorFuncs(record).Build()
	c.workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(credential, node).WithInterceptorFuncs(record).Build()
	Expect(c.management.Get(context.Background(), client.ObjectKeyFromObject(c.config), c.config)).To(Succeed())
	return c
}

func (c *clusters) boot() teardown.Boot {
	return teardown.Boot{
		Config: c.config, HasJoined: true, Management: c.management, OverlayNamespace: overlays,
		Workload:     func(context.Context) (client.Client, error) { return c.workload, nil },
		CredentialID: credentialID, NodeName: nodeName, IsUnused: func(node *corev1.Node) bool { return !record.HasKubelet(node) },
	}
}

// remaining returns the names of the objects that still exist.
func (c *clusters) remaining(ctx context.Context) (names []string) {
	GinkgoHelper()
	for _, object := range []struct {
		in     client.Client
		object client.Object
		key    client.ObjectKey
	}{
		{c.management, &corev1.Secret{}, client.ObjectKey{Namespace: overlays, Name: "overlay-u-1"}},
		{c.workload, &corev1.Secret{}, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + credentialID}},
		{c.workload, &corev1.Node{}, client.ObjectKey{Name: nodeName}},
	} {
		if err := object.in.Get(ctx, object.key, object.object); err == nil {
			names = append(names, object.key.Name)
		} else {
			Expect(apierrors.IsNotFound(err)).To(BeTrue())
		}
	}
	return names
}

var _ = Describe("The teardown of a boot", func() {
	const overlay, credential = "overlay-u-1", "bootstrap-token-" + credentialID

	It("revokes the token first, and deletes the overlay, the join credential and the Node", func(ctx context.Context) {
		c := newClusters()
		Expect(c.boot().Delete(ctx)).To(Succeed())
		Expect(c.writes).To(Equal([]string{"patch " + nodeName, "delete " + overlay, "delete " + credential, "delete " + nodeName}))
		Expect(c.remaining(ctx)).To(BeEmpty())
		Expect(record.HasJoined(c.config)).To(BeTrue())
		stored := &bootstrapv1.PoolbootConfig{}
		Expect(c.management.Get(ctx, client.ObjectKeyFromObject(c.config), stored)).To(Succeed())
		Expect(record.HasJoined(stored)).To(BeTrue())
	})

	for failing := range 4 {
		for _, late := range []bool{false, true} {
			It(fmt.Sprintf("completes when it is repeated after write %d failed, applied: %t", failing, late), func(ctx context.Context) {
				c := newClusters()
				c.failing, c.late = failing, late
				Expect(c.boot().Delete(ctx)).To(MatchError(errBroken))
				Expect(c.management.Get(ctx, client.ObjectKeyFromObject(c.config), c.config)).To(Succeed())
				Expect(c.boot().Delete(ctx)).To(Succeed())
				Expect(c.remaining(ctx)).To(BeEmpty())
				Expect(record.HasJoined(c.config)).To(BeTrue())
				Expect(c.boot().Delete(ctx)).To(Succeed(), "everything is deleted already")
			})
		}
	}

	DescribeTable("deletes the rest if one object cannot be deleted", func(ctx context.Context, failing int, remaining []string, leftovers []string) {
		c := newClusters()
		c.failing = failing
		err := c.boot().Delete(ctx)
		Expect(err).To(MatchError(errBroken))
		Expect(c.remaining(ctx)).To(Equal(remaining))
		if found, ok := errors.AsType[*teardown.LeftoverError](err); ok {
			Expect(found.Objects).To(Equal(leftovers))
		} else {
			Expect(leftovers).To(BeNil(), "the overlay must not remain")
		}
	},
		Entry("but nothing while the token is accepted", 0, []string{overlay, credential, nodeName}, nil),
		Entry("the overlay", 1, []string{overlay}, nil),
		Entry("the join credential", 2, []string{credential}, []string{"Secret kube-system/" + credential}),
		Entry("the Node", 3, []string{nodeName}, []string{"Node " + nodeName}),
	)

	It("reports everything in a workload cluster to which it cannot connect", func(ctx context.Context) {
		c := newClusters()
		boot := c.boot()
		boot.Workload = func(context.Context) (client.Client, error) { return nil, errBroken }
		err := boot.Delete(ctx)
		leftover, ok := errors.AsType[*teardown.LeftoverError](err)
		Expect(ok).To(BeTrue())
		Expect(leftover.Objects).To(Equal([]string{"Secret kube-system/" + credential, "Node " + nodeName}))
		Expect(err).To(MatchError(errBroken))
		Expect(c.remaining(ctx)).To(Equal([]string{credential, nodeName}))

		boot.CredentialID, boot.NodeName = "", ""
		Expect(boot.Delete(ctx)).To(Succeed(), "nothing to delete")
		boot = c.boot()
		boot.Workload = nil
		Expect(boot.Delete(ctx)).To(Succeed(), "the workload cluster does not exist any more")
	})

	It("keeps a Node that a kubelet uses, or starts to use in the meantime", func(ctx context.Context) {
		c := newClusters()
		boot := c.boot()
		boot.IsUnused = func(node *corev1.Node) bool {
			used := node.DeepCopy()
			used.Status.NodeInfo.KubeletVersion = "v1.36.0"
			Expect(c.workload.Status().Update(ctx, used)).To(Succeed())
			return !record.HasKubelet(node)
		}
		err := boot.Delete(ctx)
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(c.remaining(ctx)).To(Equal([]string{nodeName}))
		Expect(c.boot().Delete(ctx)).To(Succeed())
		Expect(c.remaining(ctx)).To(Equal([]string{nodeName}))
	})

	It("does not revoke the token if the host has not joined", func(ctx context.Context) {
		c := newClusters()
		boot := c.boot()
		boot.HasJoined = false
		Expect(boot.Delete(ctx)).To(Succeed())
		Expect(record.HasJoined(c.config)).To(BeFalse())
		Expect(c.remaining(ctx)).To(BeEmpty())
	})

	It("deletes the assignment only if the host does not continue to run", func(ctx context.Context) {
		c := newClusters()
		key := client.ObjectKey{Namespace: overlays, Name: "assignment-u-1"}
		Expect(c.boot().Delete(ctx)).To(Succeed())
		Expect(c.management.Get(ctx, key, &corev1.Secret{})).To(Succeed())
		boot := c.boot()
		boot.HasJoined = false
		Expect(boot.Delete(ctx)).To(Succeed())
		Expect(apierrors.IsNotFound(c.management.Get(ctx, key, &corev1.Secret{}))).To(BeTrue())
	})

	It("deletes the rest of a host that has not joined if the assignment cannot be deleted", func(ctx context.Context) {
		c := newClusters()
		c.failing = 1
		boot := c.boot()
		boot.HasJoined = false
		Expect(boot.Delete(ctx)).To(MatchError(And(ContainSubstring("assignment Secret poolboot-system/assignment-u-1"), ContainSubstring("broken"))))
		Expect(c.remaining(ctx)).To(BeEmpty())
	})

	It("refuses to revoke the token of a PoolbootConfig that has changed", func(ctx context.Context) {
		c := newClusters()
		changed := c.config.DeepCopy()
		changed.Annotations["other"] = "writer"
		Expect(c.management.Update(ctx, changed)).To(Succeed())
		Expect(apierrors.IsConflict(c.boot().Delete(ctx))).To(BeTrue())
		Expect(c.remaining(ctx)).To(Equal([]string{overlay, credential, nodeName}))
	})
})
