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

// Hosts request their configuration from hostAddress. otherAddress is another address of the same machine.
const (
	hostAddress  = "127.0.0.1"
	otherAddress = "127.0.0.2"
)

// enrollmentToken is an Enrollment of the pool infra, for hosts whose names start with the namespace's name, and the
// Secret with its token.
type enrollmentToken struct {
	*tenant.Tenant
	management client.Client
	secret     *corev1.Secret
	enrollment *poolv1.Enrollment
}

// newEnrollmentToken configures the pool infra to take hosts without a Machine, and creates an enrollment token.
func newEnrollmentToken(ctx context.Context, t *tenant.Tenant, uses int32, change ...func(*enrollmentToken)) *enrollmentToken {
	GinkgoHelper()
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	template.Spec.Template.Spec.Node.Labels = map[string]string{"example.com/from": "the-template"}
	t.Create(ctx, template)
	pool := t.Pool("infra")
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
	before := pool.DeepCopy()
	pool.Spec.Hosts.TemplateRef.Name = template.Name
	Expect(lab.ManagementClient.Patch(ctx, pool, client.MergeFrom(before))).To(Succeed())
	return createEnrollmentToken(ctx, t, lab.ManagementClient, uses, change...)
}

// createEnrollmentToken creates an enrollment token in a management cluster whose pool infra already takes hosts.
func createEnrollmentToken(ctx context.Context, t *tenant.Tenant, management client.Client, uses int32, change ...func(*enrollmentToken)) *enrollmentToken {
	GinkgoHelper()
	b := &enrollmentToken{Tenant: t, management: management}
	b.secret, b.enrollment = t.Enrollment("edge", uses)
	for _, c := range change {
		c(b)
	}
	t.Create(ctx, b.secret)
	t.Create(ctx, b.enrollment)
	return b
}

// getReady reads the Enrollment and returns its Ready condition as "Status Reason: message".
func (b *enrollmentToken) getReady(ctx context.Context) (string, error) {
	if err := b.management.Get(ctx, client.ObjectKeyFromObject(b.enrollment), b.enrollment); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if c := meta.FindStatusCondition(b.enrollment.Status.Conditions, poolv1.EnrollmentReadyCondition); c != nil {
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}
	return "", nil
}

// setLifetime sets the Enrollment's expiration time.
func (b *enrollmentToken) setLifetime(ctx context.Context, lifetime time.Duration) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if _, err := b.getReady(ctx); err != nil {
			return err
		}
		before := b.enrollment.DeepCopy()
		b.enrollment.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(lifetime))
		return b.management.Patch(ctx, b.enrollment, client.MergeFrom(before))
	}).Should(Succeed())
}

// pointer returns the pointer for a host's user data. All of it is in the Secret and in the Enrollment's status.
func (b *enrollmentToken) pointer(name string) ignition.Pointer {
	return ignition.Pointer{
		URL: b.enrollment.Status.URL + "?name=" + name, CA: []byte(b.enrollment.Status.CertificateAuthority),
		Token: string(b.secret.Data["token"]),
	}
}

// hostName returns a name that the Enrollment admits.
func (b *enrollmentToken) hostName(i int) string { return fmt.Sprintf("%s-%d", b.Namespace, i) }

// newRecord returns a PoolbootConfig with the name of a host.
func (b *enrollmentToken) newRecord(name string) *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.Namespace}}
}

// requestFrom sends one request from a source address, with the given Accept headers.
func requestFrom(ctx context.Context, sourceAddress string, pointer ignition.Pointer, accepts ...string) (code int, body string, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pointer.CA)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(sourceAddress)}}
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

// fetchConfiguration fetches a host's configuration, with retries.
func fetchConfiguration(ctx context.Context, pointer ignition.Pointer) ignition.Config {
	GinkgoHelper()
	config, err := fetch.Config(ctx, pointer, func(int) {})
	Expect(err).NotTo(HaveOccurred())
	return config
}

// listEvents returns a function that lists the notes of an object's events with a reason.
func listEvents(ctx context.Context, namespace, kind, name, reason string) func() ([]string, error) {
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
	It("gets the configuration of a Machine of the pool, after its Node is pre-registered in the pool", func(ctx SpecContext) {
		b := newEnrollmentToken(ctx, tenant.New(ctx, lab, 0), 3)
		Eventually(ctx, b.getReady).Should(HavePrefix("True Admits"))
		name := b.hostName(1)
		config := fetchConfiguration(ctx, b.pointer(name))
		var paths []string
		for _, file := range config.Storage.Files {
			paths = append(paths, file.Path)
		}
		Expect(paths).To(ContainElements("/etc/workertest", "/etc/infratest", ignition.BootstrapKubeconfigPath))

		record := b.newRecord(name)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(record.Status.PoolRole).To(Equal("infra"))
		node := b.Node(ctx, record)
		Expect(node.Name).To(Equal(name))
		Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
			HaveKeyWithValue("example.com/from", "the-template")))
		Expect(listTaintKeys(node.Spec.Taints)).To(And(ContainElement(poolv1.NodeUnassignedTaint), Not(ContainElement(clusterv1.NodeUninitializedTaint.Key))))
		Eventually(ctx, b.Condition(record, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		pool := b.Pool("infra")
		Eventually(ctx, func() (*int32, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)
			return pool.Status.HostCount, err
		}).Should(HaveValue(BeEquivalentTo(1)), "the pool counts the host")

		By("reporting the use in events of the pool, the Enrollment and the host's record, without the token")
		for kind, object := range map[string]string{"MachineConfigPool": "infra", "Enrollment": "edge", "PoolbootConfig": name} {
			Eventually(ctx, listEvents(ctx, b.Namespace, kind, object, poolv1.EventHostAdmitted)).Should(ConsistOf(
				And(ContainSubstring("1 of 3 uses"), ContainSubstring(hostAddress), Not(ContainSubstring(b.pointer("").Token)))), kind)
		}

		By("counting one use for several requests")
		for range 3 {
			fetchConfiguration(ctx, b.pointer(name))
		}
		Eventually(ctx, func() (poolv1.EnrollmentStatus, error) { _, err := b.getReady(ctx); return b.enrollment.Status, err }).Should(And(
			HaveField("Requests", BeEmpty()), HaveField("Conditions", ContainElement(HaveField("Message", ContainSubstring("2 more host(s)"))))))
		Expect(b.enrollment.AdmittedNames()).To(Equal([]string{name}))
		table, err := lab.Kubectl(ctx, lab.Management, "get", "enrollments", "--namespace", b.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(strings.Split(table, "\n")[0])).To(Equal([]string{"NAME", "POOL", "USES", "USED", "EXPIRES", "READY", "REASON", "AGE"}))
		Expect(strings.Fields(strings.Split(table, "\n")[1])[:4]).To(Equal([]string{"edge", "infra", "3", "1"}))

		By("keeping its pool from being deleted")
		Expect(lab.ManagementClient.Delete(ctx, pool)).To(MatchError(ContainSubstring(name)))

		By("cleaning up when its record is deleted before it joined")
		Expect(lab.ManagementClient.Delete(ctx, record)).To(Succeed())
		Eventually(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), node) }).Should(Satisfy(apierrors.IsNotFound))
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: "poolboot-system", Name: bootstrapv1.OverlayNamePrefix + string(record.UID)}, &corev1.Secret{})).
			To(Satisfy(apierrors.IsNotFound))
	})

	It("is admitted up to the token's number of uses, also with simultaneous requests", func(ctx SpecContext) {
		b := newEnrollmentToken(ctx, tenant.New(ctx, lab, 0), 2)
		Eventually(ctx, b.getReady).Should(HavePrefix("True Admits"))
		Eventually(ctx, func() (int, error) {
			code, _, err := requestFrom(ctx, hostAddress, b.pointer("core-1"))
			return code, err
		}).
			Should(Equal(http.StatusForbidden), "the config server knows the Enrollment")
		codes := make([]int, 5)
		var all sync.WaitGroup
		for i := range codes {
			all.Go(func() {
				defer GinkgoRecover()
				var err error
				codes[i], _, err = requestFrom(ctx, hostAddress, b.pointer(b.hostName(i)))
				Expect(err).NotTo(HaveOccurred())
			})
		}
		all.Wait()
		Expect(codes).To(HaveEach(Or(Equal(http.StatusOK), Equal(http.StatusServiceUnavailable))))
		Eventually(ctx, b.getReady).Should(HavePrefix("False UsedUp"))
		Eventually(ctx, listEvents(ctx, b.Namespace, "MachineConfigPool", "infra", poolv1.EventHostRefused)).Should(
			And(HaveLen(3), HaveEach(ContainSubstring("all 2 uses are taken"))))
		Expect(b.getReady(ctx)).To(HavePrefix("False UsedUp"))
		Expect(b.enrollment.AdmittedNames()).To(HaveLen(2))
		Eventually(ctx, func() ([]bootstrapv1.PoolbootConfig, error) {
			var configs bootstrapv1.PoolbootConfigList
			err := lab.ManagementClient.List(ctx, &configs, client.InNamespace(b.Namespace))
			return configs.Items, err
		}).Should(HaveLen(2))
	})

	It("reserves its name: a request for the name from another host is refused and reported", func(ctx SpecContext) {
		b := newEnrollmentToken(ctx, tenant.New(ctx, lab, 0), 3)
		Eventually(ctx, b.getReady).Should(HavePrefix("True Admits"))
		fetchConfiguration(ctx, b.pointer(b.hostName(1)))
		// Requests for a name are recorded at intervals, therefore the refusal can take several requests.
		Eventually(ctx, func() (string, error) {
			code, body, err := requestFrom(ctx, otherAddress, b.pointer(b.hostName(1)))
			return fmt.Sprint(code, " ", body), err
		}).Should(And(HavePrefix("503"), ContainSubstring("another host with this name was admitted from "+hostAddress)))
		Eventually(ctx, listEvents(ctx, b.Namespace, "PoolbootConfig", b.hostName(1), poolv1.EventHostRefused)).Should(ConsistOf(ContainSubstring(otherAddress)))
		fetchConfiguration(ctx, b.pointer(b.hostName(1)))
	})

	It("does not adopt the Node of an earlier host with its name, and boots after that Node is deleted", func(ctx SpecContext) {
		b := newEnrollmentToken(ctx, tenant.New(ctx, lab, 0), 2)
		Eventually(ctx, b.getReady).Should(HavePrefix("True Admits"))
		name := b.hostName(1)
		fetchConfiguration(ctx, b.pointer(name))
		record := b.newRecord(name)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		node := b.Node(ctx, record)
		makeNodeReady(ctx, b.Tenant, record)
		Eventually(ctx, func() (int, error) { code, _, err := requestFrom(ctx, hostAddress, b.pointer(name)); return code, err }).
			Should(Equal(http.StatusUnauthorized), "the host has joined")

		By("requesting request after its record was deleted, while its Node exists")
		Expect(lab.ManagementClient.Delete(ctx, record)).To(Succeed())
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), record) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		request := func() (string, error) {
			code, body, err := requestFrom(ctx, hostAddress, b.pointer(name))
			return fmt.Sprint(code, " ", body), err
		}
		// The config server sees the deletion of the record with a delay.
		Eventually(ctx, request).Should(And(HavePrefix("503"), ContainSubstring("Node "+name+" already exists")))
		Consistently(ctx, request).Should(HavePrefix("503"))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(record), b.newRecord(name))).To(Satisfy(apierrors.IsNotFound), "the Node was not adopted")
		remaining := node.DeepCopy()
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), remaining)).To(Succeed())
		Expect([]any{remaining.UID, remaining.Labels, remaining.Annotations}).To(Equal([]any{node.UID, node.Labels, node.Annotations}), "the Node was not changed")
		Eventually(ctx, listEvents(ctx, b.Namespace, "Enrollment", "edge", poolv1.EventHostRefused)).Should(ContainElement(ContainSubstring("or delete the Node")),
			"the request after the join may also have caused an event")

		By("requesting after the Node was deleted")
		Expect(lab.WorkloadClient.Delete(ctx, node)).To(Succeed())
		fetchConfiguration(ctx, b.pointer(name))
		current := b.newRecord(name)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(current), current)).To(Succeed())
		Expect(current.UID).NotTo(Equal(record.UID))
		Expect(current.Status.NodeRef.UID).NotTo(Equal(string(remaining.UID)))
		Expect(current.Status.NodeRef.UID).To(Equal(string(b.Node(ctx, current).UID)))
		Expect(b.getReady(ctx)).To(HavePrefix("True Admits"))
		Expect(b.enrollment.AdmittedNames()).To(Equal([]string{name}), "a name counts as one use")
	})

	It("gets the status code for its token, and requests with a wrong token write nothing", func(ctx SpecContext) {
		b := newEnrollmentToken(ctx, tenant.New(ctx, lab, 0), 3)
		Eventually(ctx, b.getReady).Should(HavePrefix("True Admits"))
		valid := b.pointer(b.hostName(1))
		wrong, other, name := valid, valid, valid
		wrong.Token = strings.Repeat("A", 43)
		other.URL = strings.Replace(valid.URL, "/config/infra", "/config/worker", 1)
		name.URL = b.pointer("core-1").URL
		version := b.enrollment.ResourceVersion
		for pointer, want := range map[*ignition.Pointer]int{
			&wrong: http.StatusServiceUnavailable, &other: http.StatusUnauthorized, &name: http.StatusForbidden,
		} {
			// The config server sees the Enrollment with a delay.
			Eventually(ctx, func() (int, error) { code, _, err := requestFrom(ctx, hostAddress, *pointer); return code, err }).Should(Equal(want))
		}
		Expect(b.getReady(ctx)).To(HavePrefix("True"))
		Expect(b.enrollment.ResourceVersion).To(Equal(version))

		By("letting it expire")
		b.setLifetime(ctx, 0)
		Eventually(ctx, b.getReady).Should(HavePrefix("False Expired"))
		Eventually(ctx, func() (int, error) { code, _, err := requestFrom(ctx, hostAddress, valid); return code, err }).Should(Equal(http.StatusUnauthorized))

		By("deleting its Secret")
		b.setLifetime(ctx, time.Hour)
		Eventually(ctx, b.getReady).Should(HavePrefix("True"))
		Expect(lab.ManagementClient.Delete(ctx, b.secret)).To(Succeed())
		Eventually(ctx, b.getReady).Should(HavePrefix("False " + poolv1.EnrollmentSecretNotFoundReason))
		Eventually(ctx, func() (int, error) { code, _, err := requestFrom(ctx, hostAddress, valid); return code, err }).Should(Equal(http.StatusServiceUnavailable))
	})

	It("can have its Enrollment, Secret and Cluster created in any order", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		b := &enrollmentToken{Tenant: t, management: lab.ManagementClient}
		b.secret, b.enrollment = t.Enrollment("edge", 1)
		t.Create(ctx, b.enrollment)
		Eventually(ctx, b.getReady).Should(HavePrefix("False " + poolv1.EnrollmentSecretNotFoundReason))
		Expect(b.secret.Labels).NotTo(HaveKey(clusterv1.ClusterNameLabel), "a Secret is found by its type")
		t.Create(ctx, b.secret)
		Eventually(ctx, b.getReady).Should(HavePrefix("False " + poolv1.ClusterNotFoundReason))
		Expect(b.enrollment.OwnerReferences).To(BeEmpty())
		t.CreateCluster(ctx, clusterapi.ClusterOptions{})
		Eventually(ctx, b.getReady).Should(HavePrefix("False " + poolv1.EnrollmentPoolNotFoundReason))
		Expect(b.enrollment.OwnerReferences).To(ConsistOf(HaveField("Name", t.Namespace)))

		By("pausing the Cluster")
		pause := func(paused string) {
			GinkgoHelper()
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Namespace}}
			Expect(lab.ManagementClient.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":`+paused+`}}`)))).To(Succeed())
		}
		paused := func() (bool, error) {
			_, err := b.getReady(ctx)
			return meta.IsStatusConditionTrue(b.enrollment.Status.Conditions, clusterv1.PausedCondition), err
		}
		pause("true")
		Eventually(ctx, paused).Should(BeTrue())
		pause("null")
		Eventually(ctx, paused).Should(BeFalse())
	})

	DescribeTable("is not admitted, and the Enrollment reports the reason",
		func(ctx SpecContext, reason string, change func(*enrollmentToken)) {
			b := newEnrollmentToken(ctx, tenant.New(ctx, lab, 0), 3, change)
			Eventually(ctx, b.getReady).Should(HavePrefix("False " + reason))
		},
		Entry("to a pool that admits only Machines", poolv1.EnrollmentPoolTakesMachinesOnlyReason, func(b *enrollmentToken) { b.enrollment.Spec.PoolRole = "worker" }),
		Entry("to a pool that does not exist", poolv1.EnrollmentPoolNotFoundReason, func(b *enrollmentToken) { b.enrollment.Spec.PoolRole = "gpu" }),
		Entry("with a token that can be guessed", poolv1.EnrollmentInvalidSecretReason, func(b *enrollmentToken) { b.secret.StringData["token"] = "edge" }),
		Entry("with a Secret of another type", poolv1.EnrollmentSecretNotFoundReason, func(b *enrollmentToken) { b.secret.Type = corev1.SecretTypeOpaque }),
		Entry("with a token that has expired", poolv1.EnrollmentExpiredReason, func(b *enrollmentToken) {
			b.enrollment.Spec.ExpirationTime = metav1.NewTime(time.Now().Add(-time.Hour))
		}),
	)
})
