package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// home is where hosts of these tests ask from, and elsewhere another address of this machine.
const (
	home      = "127.0.0.1"
	elsewhere = "127.0.0.2"
)

// batch is an Enrollment of the pool infra, for hosts whose names start with the namespace's, and the Secret with its
// token.
type batch struct {
	*tenant.Tenant
	management client.Client
	secret     *corev1.Secret
	enrollment *poolv1.Enrollment
}

// newBatch has the pool infra take hosts, and creates a token; change may change what is created.
func newBatch(ctx context.Context, t *tenant.Tenant, uses int32, change ...func(*batch)) *batch {
	GinkgoHelper()
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	template.Spec.Template.Spec.NodeLabels = map[string]string{"example.com/from": "the-template"}
	t.Create(ctx, template)
	pool := t.Pool("infra")
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
	before := pool.DeepCopy()
	pool.Spec.HostTemplateRef.Name = template.Name
	Expect(lab.ManagementClient.Patch(ctx, pool, client.MergeFrom(before))).To(Succeed())
	return newToken(ctx, t, lab.ManagementClient, uses, change...)
}

// newToken creates a token for hosts that the pool infra takes already, in a management cluster.
func newToken(ctx context.Context, t *tenant.Tenant, management client.Client, uses int32, change ...func(*batch)) *batch {
	GinkgoHelper()
	b := &batch{Tenant: t, management: management}
	b.secret, b.enrollment = t.Enrollment("edge", uses)
	for _, c := range change {
		c(b)
	}
	t.Create(ctx, b.secret)
	t.Create(ctx, b.enrollment)
	return b
}

// ready reads the condition of the enrollment afresh.
func (b *batch) ready(ctx context.Context) (string, error) {
	if err := b.management.Get(ctx, client.ObjectKeyFromObject(b.enrollment), b.enrollment); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if c := meta.FindStatusCondition(b.enrollment.Status.Conditions, poolv1.EnrollmentReadyCondition); c != nil {
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}
	return "", nil
}

// prolong has the enrollment expire after a time from now, as a user does.
func (b *batch) prolong(ctx context.Context, life time.Duration) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if _, err := b.ready(ctx); err != nil {
			return err
		}
		before := b.enrollment.DeepCopy()
		b.enrollment.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(life))
		return b.management.Patch(ctx, b.enrollment, client.MergeFrom(before))
	}).Should(Succeed())
}

// pointer is what is in the user data of a host of the batch: all of it is in the Secret and in the enrollment's
// status.
func (b *batch) pointer(name string) ignition.Pointer {
	return ignition.Pointer{
		URL: b.enrollment.Status.URL + "?name=" + name, CA: []byte(b.enrollment.Status.CertificateAuthority),
		Token: string(b.secret.Data["token"]),
	}
}

// name is a name of the batch.
func (b *batch) name(i int) string { return fmt.Sprintf("%s-%d", b.Namespace, i) }

// record is the PoolbootConfig of a host of the batch.
func (b *batch) record(name string) *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.Namespace}}
}

// ask asks once, from an address, and accepts what is named, or anything.
func ask(ctx context.Context, from string, pointer ignition.Pointer, accepts ...string) (code int, body string, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pointer.CA)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true, DialContext: dialer.DialContext}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, pointer.URL, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+pointer.Token)
	request.Header["Accept"] = accepts
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}

// served is a host of the batch that asks until it has its configuration.
func served(ctx context.Context, pointer ignition.Pointer) ignition.Config {
	GinkgoHelper()
	config, err := fetch.Config(ctx, pointer, func(int) {})
	Expect(err).NotTo(HaveOccurred())
	return config
}

// told are the notes of the events of a reason on an object.
func told(ctx context.Context, namespace, kind, name, reason string) func() ([]string, error) {
	return func() ([]string, error) {
		var list eventsv1.EventList
		err := lab.ManagementClient.List(ctx, &list, client.InNamespace(namespace))
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == reason {
				notes = append(notes, e.Note)
			}
		}
		return notes, err
	}
}

var _ = Describe("A host with an enrollment token", func() {
	It("gets what a Machine of the pool gets, and its Node stands in the pool before that", func(ctx SpecContext) {
		b := newBatch(ctx, tenant.New(ctx, lab, 0), 3)
		Eventually(ctx, b.ready).Should(HavePrefix("True Admits"))
		name := b.name(1)
		config := served(ctx, b.pointer(name))
		var paths []string
		for _, file := range config.Storage.Files {
			paths = append(paths, file.Path)
		}
		Expect(paths).To(ContainElements("/etc/workertest", "/etc/infratest", ignition.BootstrapKubeconfigPath))

		record := b.record(name)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(record.Status.PoolRole).To(Equal("infra"))
		node := b.Node(ctx, record)
		Expect(node.Name).To(Equal(name))
		Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
			HaveKeyWithValue("example.com/from", "the-template")))
		Expect(names(node.Spec.Taints)).To(And(ContainElement(poolv1.NodeUnassignedTaint), Not(ContainElement(clusterv1.NodeUninitializedTaint.Key))))
		Eventually(ctx, b.Condition(record, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		pool := b.Pool("infra")
		Eventually(ctx, func() (*int32, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)
			return pool.Status.MachineCount, err
		}).Should(HaveValue(BeEquivalentTo(1)), "the pool counts it")

		By("telling of the use on the pool, the enrollment and the host's record, without the token")
		for kind, object := range map[string]string{"MachineConfigPool": "infra", "Enrollment": "edge", "PoolbootConfig": name} {
			Eventually(ctx, told(ctx, b.Namespace, kind, object, poolv1.EventHostAdmitted)).Should(ConsistOf(
				And(ContainSubstring("1 of 3 uses"), ContainSubstring(home), Not(ContainSubstring(b.pointer("").Token)))), kind)
		}

		By("counting one use however often it asks")
		for range 3 {
			served(ctx, b.pointer(name))
		}
		Eventually(ctx, func() (poolv1.EnrollmentStatus, error) { _, err := b.ready(ctx); return b.enrollment.Status, err }).Should(And(
			HaveField("Requests", BeEmpty()), HaveField("Conditions", ContainElement(HaveField("Message", ContainSubstring("2 more host(s)"))))))
		Expect(b.enrollment.Spec.Admitted).To(Equal([]string{name}))
		table, err := lab.Kubectl(ctx, lab.Management, "get", "enrollments", "--namespace", b.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(strings.Split(table, "\n")[0])).To(Equal([]string{"NAME", "POOL", "NAMES", "USES", "USED", "EXPIRES", "READY", "REASON", "AGE"}))
		Expect(strings.Fields(strings.Split(table, "\n")[1])[:5]).To(Equal([]string{"edge", "infra", b.Namespace + "-*", "3", "1"}))

		By("keeping its pool from being deleted")
		Expect(lab.ManagementClient.Delete(ctx, pool)).To(MatchError(ContainSubstring(name)))

		By("leaving nothing behind when its record is deleted before it joined")
		Expect(lab.ManagementClient.Delete(ctx, record)).To(Succeed())
		Eventually(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), node) }).Should(Satisfy(apierrors.IsNotFound))
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: "poolboot-system", Name: bootstrapv1.OverlayNamePrefix + string(record.UID)}, &corev1.Secret{})).
			To(Satisfy(apierrors.IsNotFound))
	})

	It("is one of no more than the token allows, also when all ask at once", func(ctx SpecContext) {
		b := newBatch(ctx, tenant.New(ctx, lab, 0), 2)
		Eventually(ctx, b.ready).Should(HavePrefix("True Admits"))
		Eventually(ctx, func() (int, error) { code, _, err := ask(ctx, home, b.pointer("core-1")); return code, err }).
			Should(Equal(http.StatusForbidden), "the config server knows the token")
		codes := make([]int, 5)
		var all sync.WaitGroup
		for i := range codes {
			all.Go(func() {
				defer GinkgoRecover()
				var err error
				codes[i], _, err = ask(ctx, home, b.pointer(b.name(i)))
				Expect(err).NotTo(HaveOccurred())
			})
		}
		all.Wait()
		Expect(codes).To(HaveEach(Or(Equal(http.StatusOK), Equal(http.StatusServiceUnavailable))))
		Eventually(ctx, b.ready).Should(HavePrefix("False UsedUp"))
		Eventually(ctx, told(ctx, b.Namespace, "MachineConfigPool", "infra", poolv1.EventHostRefused)).Should(
			And(HaveLen(3), HaveEach(ContainSubstring("all 2 uses are taken"))))
		Expect(b.ready(ctx)).To(HavePrefix("False UsedUp"))
		Expect(b.enrollment.Spec.Admitted).To(HaveLen(2))
		Eventually(ctx, func() ([]bootstrapv1.PoolbootConfig, error) {
			var configs bootstrapv1.PoolbootConfigList
			err := lab.ManagementClient.List(ctx, &configs, client.InNamespace(b.Namespace))
			return configs.Items, err
		}).Should(HaveLen(2))
	})

	It("has its name to itself: another one that asks under it is refused, and that is told", func(ctx SpecContext) {
		b := newBatch(ctx, tenant.New(ctx, lab, 0), 3)
		Eventually(ctx, b.ready).Should(HavePrefix("True Admits"))
		served(ctx, b.pointer(b.name(1)))
		// A name is noted once in a while, from whatever address, so the answer may come at a later try.
		Eventually(ctx, func() (string, error) {
			code, body, err := ask(ctx, elsewhere, b.pointer(b.name(1)))
			return fmt.Sprint(code, " ", body), err
		}).Should(And(HavePrefix("503"), ContainSubstring("another host asks under this name, from "+home)))
		Eventually(ctx, told(ctx, b.Namespace, "PoolbootConfig", b.name(1), poolv1.EventHostRefused)).Should(ConsistOf(ContainSubstring(elsewhere)))
		served(ctx, b.pointer(b.name(1)))
	})

	It("does not take over the Node that an earlier host of its name left, and goes on once that is deleted", func(ctx SpecContext) {
		b := newBatch(ctx, tenant.New(ctx, lab, 0), 2)
		Eventually(ctx, b.ready).Should(HavePrefix("True Admits"))
		name := b.name(1)
		served(ctx, b.pointer(name))
		record := b.record(name)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		node := b.Node(ctx, record)
		becomeReady(ctx, b.Tenant, record)
		Eventually(ctx, func() (int, error) { code, _, err := ask(ctx, home, b.pointer(name)); return code, err }).
			Should(Equal(http.StatusUnauthorized), "the host has joined")

		By("asking again when its record is gone and its Node is left")
		Expect(lab.ManagementClient.Delete(ctx, record)).To(Succeed())
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		again := func() (string, error) {
			code, body, err := ask(ctx, home, b.pointer(name))
			return fmt.Sprint(code, " ", body), err
		}
		// A replica of the config server may hear a moment later that the record is gone.
		Eventually(ctx, again).Should(And(HavePrefix("503"), ContainSubstring("Node "+name+" exists already")))
		Consistently(ctx, again).Should(HavePrefix("503"))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), b.record(name))).To(Satisfy(apierrors.IsNotFound), "nothing adopted the Node")
		left := node.DeepCopy()
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), left)).To(Succeed())
		Expect([]any{left.UID, left.Labels, left.Annotations}).To(Equal([]any{node.UID, node.Labels, node.Annotations}), "nothing was written on it")
		Eventually(ctx, told(ctx, b.Namespace, "Enrollment", "edge", poolv1.EventHostRefused)).Should(ContainElement(ContainSubstring("delete the Node if")),
			"the request after the join may also have caused an event")

		By("going on when the Node is deleted")
		Expect(lab.WorkloadClient.Delete(ctx, node)).To(Succeed())
		served(ctx, b.pointer(name))
		now := b.record(name)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		Expect(now.UID).NotTo(Equal(record.UID))
		Expect(now.Status.NodeRef.UID).NotTo(Equal(string(left.UID)))
		Expect(now.Status.NodeRef.UID).To(Equal(string(b.Node(ctx, now).UID)))
		Expect(b.ready(ctx)).To(HavePrefix("True Admits"))
		Expect(b.enrollment.Spec.Admitted).To(Equal([]string{name}), "a name is one use")
	})

	It("is answered as its token deserves, and nothing is written for one that has none", func(ctx SpecContext) {
		b := newBatch(ctx, tenant.New(ctx, lab, 0), 3)
		Eventually(ctx, b.ready).Should(HavePrefix("True Admits"))
		valid := b.pointer(b.name(1))
		wrong, other, name := valid, valid, valid
		wrong.Token = strings.Repeat("A", 43)
		other.URL = strings.Replace(valid.URL, "/config/infra", "/config/worker", 1)
		name.URL = b.pointer("core-1").URL
		version := b.enrollment.ResourceVersion
		for what, expected := range map[*ignition.Pointer]int{
			&wrong: http.StatusServiceUnavailable, &other: http.StatusUnauthorized, &name: http.StatusForbidden,
		} {
			// The config server hears of the enrollment a moment after it is ready.
			Eventually(ctx, func() (int, error) { code, _, err := ask(ctx, home, *what); return code, err }).Should(Equal(expected))
		}
		Expect(b.ready(ctx)).To(HavePrefix("True"))
		Expect(b.enrollment.ResourceVersion).To(Equal(version))

		By("ending with its time")
		b.prolong(ctx, 0)
		Eventually(ctx, b.ready).Should(HavePrefix("False Expired"))
		Eventually(ctx, func() (int, error) { code, _, err := ask(ctx, home, valid); return code, err }).Should(Equal(http.StatusUnauthorized))

		By("ending with its Secret")
		b.prolong(ctx, time.Hour)
		Eventually(ctx, b.ready).Should(HavePrefix("True"))
		Expect(lab.ManagementClient.Delete(ctx, b.secret)).To(Succeed())
		Eventually(ctx, b.ready).Should(HavePrefix("False " + poolv1.EnrollmentSecretNotFoundReason))
		Eventually(ctx, func() (int, error) { code, _, err := ask(ctx, home, valid); return code, err }).Should(Equal(http.StatusServiceUnavailable))
	})

	It("may have its Enrollment, Secret and Cluster created in any order", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		b := &batch{Tenant: t, management: lab.ManagementClient}
		b.secret, b.enrollment = t.Enrollment("edge", 1)
		t.Create(ctx, b.enrollment)
		Eventually(ctx, b.ready).Should(HavePrefix("False " + poolv1.EnrollmentSecretNotFoundReason))
		Expect(b.secret.Labels).NotTo(HaveKey(clusterv1.ClusterNameLabel), "a Secret is found by its type")
		t.Create(ctx, b.secret)
		Eventually(ctx, b.ready).Should(HavePrefix("False " + poolv1.ClusterNotFoundReason))
		Expect(b.enrollment.OwnerReferences).To(BeEmpty())
		t.CreateCluster(ctx, clusterapi.ClusterOptions{})
		Eventually(ctx, b.ready).Should(HavePrefix("False " + poolv1.EnrollmentPoolNotFoundReason))
		Expect(b.enrollment.OwnerReferences).To(ConsistOf(HaveField("Name", t.Namespace)))

		By("saying that it is paused")
		pause := func(paused string) {
			GinkgoHelper()
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Namespace}}
			Expect(lab.ManagementClient.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":`+paused+`}}`)))).To(Succeed())
		}
		paused := func() (bool, error) {
			_, err := b.ready(ctx)
			return meta.IsStatusConditionTrue(b.enrollment.Status.Conditions, clusterv1.PausedCondition), err
		}
		pause("true")
		Eventually(ctx, paused).Should(BeTrue())
		pause("null")
		Eventually(ctx, paused).Should(BeFalse())
	})

	DescribeTable("is not admitted, and the enrollment says why",
		func(ctx SpecContext, reason string, change func(*batch)) {
			b := newBatch(ctx, tenant.New(ctx, lab, 0), 3, change)
			Eventually(ctx, b.ready).Should(HavePrefix("False " + reason))
		},
		Entry("by a pool that takes Machines only", poolv1.EnrollmentPoolTakesMachinesOnlyReason, func(b *batch) { b.enrollment.Spec.PoolRole = "worker" }),
		Entry("by a pool that is not there", poolv1.EnrollmentPoolNotFoundReason, func(b *batch) { b.enrollment.Spec.PoolRole = "gpu" }),
		Entry("with a token that can be guessed", poolv1.EnrollmentInvalidSecretReason, func(b *batch) { b.secret.StringData["token"] = "edge" }),
		Entry("with a Secret of another type", poolv1.EnrollmentSecretNotFoundReason, func(b *batch) { b.secret.Type = corev1.SecretTypeOpaque }),
		Entry("with a token that has expired", poolv1.EnrollmentExpiredReason, func(b *batch) { b.enrollment.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(-time.Hour)) }),
	)
})
