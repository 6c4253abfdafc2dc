package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
)

var _ = Describe("The stored assignment of a host", func() {
	// countReads counts the assignments that are read from the API server.
	countReads := func(w *world) *int {
		count := new(int)
		w.reconciler.APIReader = interceptor.NewClient(w.management, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, isSecret := o.(*corev1.Secret); isSecret {
					*count++
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		return count
	}
	secret := func(ctx context.Context, w *world) *corev1.Secret {
		GinkgoHelper()
		s := &corev1.Secret{}
		Expect(w.management.Get(ctx, w.reconciler.secrets().Key(w.config(ctx, 0).UID), s)).To(Succeed())
		return s
	}

	It("is read once, and again only when someone else has written it", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		reads := countReads(w)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(*reads).To(BeZero())

		By("altering it")
		stored := secret(ctx, w)
		written := stored.DeepCopy()
		stored.Data[bootstrapv1.AssignmentKey] = []byte("{}")
		Expect(w.management.Update(ctx, stored)).To(Succeed())
		Expect(w.reconciler.assignmentChanged().Update(event.UpdateEvent{ObjectOld: written, ObjectNew: stored})).To(BeTrue())
		Expect(w.reconciler.configOfAssignment(ctx, stored)).To(ConsistOf(HaveField("NamespacedName", client.ObjectKeyFromObject(w.config(ctx, 0)))))
		w.settle(ctx)
		Expect(*reads).To(Equal(1))
		Expect(secret(ctx, w).Data).To(Equal(written.Data))
		Expect(w.reconciler.assignmentChanged().Update(event.UpdateEvent{ObjectOld: stored, ObjectNew: secret(ctx, w)})).To(BeFalse(), "an own write")

		By("deleting it")
		Expect(w.management.Delete(ctx, stored)).To(Succeed())
		w.settle(ctx)
		Expect(secret(ctx, w).Data).To(Equal(written.Data))

		By("restarting the manager")
		w.reconciler = w.newManager(w.Write)
		reads = countReads(w)
		w.settle(ctx)
		Expect(*reads).To(Equal(1))
	})

	It("is not read because the cache does not have an own write yet, unless it never gets it", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		before := secret(ctx, w)
		reads := countReads(w)
		w.reconciler.Secrets = controllertest.NewCache(interceptor.NewClient(w.management, interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
				o.SetResourceVersion(before.ResourceVersion)
				return nil
			},
		}))
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(secret(ctx, w).ResourceVersion).NotTo(Equal(before.ResourceVersion))
		Expect(*reads).To(BeZero())
		known, _ := w.reconciler.known(w.config(ctx, 0).UID)
		known.since = time.Now().Add(-ownwrites.MaxLag)
		w.reconciler.assignments.Add(w.config(ctx, 0).UID, known)
		w.settle(ctx)
		Expect(*reads).NotTo(BeZero())
	})

	It("is read once while there is none, and again when someone else has written it", func(ctx SpecContext) {
		w := newWorld(1)
		reads := countReads(w)
		config := w.config(ctx, 0)
		Expect(w.management.Delete(ctx, secret(ctx, w))).To(Succeed())
		for range 3 {
			Expect(w.reconciler.knownStoredOf(ctx, config)).To(BeNil())
		}
		Expect(*reads).To(Equal(1))
		stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.reconciler.OverlayNamespace, Name: w.reconciler.secrets().Key(config.UID).Name, ResourceVersion: "1000",
			Labels: map[string]string{bootstrapv1.AssignmentLabel: string(config.UID)},
		}}
		Expect(w.reconciler.assignmentChanged().Create(event.CreateEvent{Object: stored})).To(BeTrue())
		stored.ResourceVersion = ""
		Expect(w.management.Create(ctx, stored)).To(Succeed())
		_, err := w.reconciler.knownStoredOf(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		Expect(*reads).To(Equal(2))
	})

	It("of a host that is not known causes no event", func(ctx SpecContext) {
		w := newWorld(1)
		unknown := secretmetadata.New()
		unknown.Labels = map[string]string{bootstrapv1.AssignmentLabel: "another"}
		Expect(w.reconciler.assignmentChanged().Update(event.UpdateEvent{ObjectOld: unknown, ObjectNew: unknown})).To(BeFalse())
		Expect(w.reconciler.configOfAssignment(ctx, unknown)).To(BeEmpty())
	})

	It("of a host that awaits its agent is what the host booted with, whatever an upgrade changes, with the agent that is offered now", func(ctx SpecContext) {
		w := newWorld(1)
		config := w.config(ctx, 0)
		Expect(w.management.Delete(ctx, secretOf(config, nil))).To(Succeed())
		config.Spec.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline
		Expect(w.management.Update(ctx, config)).To(Succeed())
		w.changeNode(ctx, 0, func(node *corev1.Node) { delete(node.Annotations, agentv1.AgentAnnotation) })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.management.Get(ctx, w.reconciler.secrets().Key(config.UID), &corev1.Secret{})).NotTo(Succeed(), "its data Secret is from before there was an agent")
		Expect(w.updated(ctx, 0)).To(HaveField("Message", ContainSubstring("runs no agent")))

		annotate := func(key string) {
			config = w.config(ctx, 0)
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, key, "1-2")
			Expect(w.management.Update(ctx, config)).To(Succeed())
			w.settle(ctx)
		}
		offer := func(version string) *assignment.Agent {
			agent := assignment.Agent{Version: version, SHA512: map[string]string{"amd64": version}}
			w.reconciler.Offer = func() (join.Offer, error) { return join.Offer{Agent: agent}, nil }
			return &agent
		}
		document := func() []byte { return secret(ctx, w).Data[bootstrapv1.AssignmentKey] }
		booted := func(agent *assignment.Agent) []byte {
			a, err := assignment.Read(newDocument(config, "rendered-worker-1", ""))
			Expect(err).NotTo(HaveOccurred())
			a.Agent = agent
			document, err := assignment.Encode(a)
			Expect(err).NotTo(HaveOccurred())
			return document
		}
		first, builds := offer("v0.1.0"), 0
		w.reconciler.document = func(_ context.Context, h *host, in poolContext) ([]byte, error) {
			builds++
			return newDocument(h.Config, in.pool.Status.Configuration.Name, w.force), nil
		}
		annotate(bootstrapv1.PointerIDAnnotation)
		Expect(document()).To(Equal(booted(first)))
		Expect(builds).To(Equal(1))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.NoAgentReason),
			HaveField("Message", ContainSubstring("has not downloaded its agent")), HaveField("Message", ContainSubstring(ignition.InstallAgentUnit))))
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DesiredAnnotation))
		w.passed = 2 * answerDeadline
		w.settle(ctx)
		Expect(w.updated(ctx, 0)).To(HaveField("Reason", bootstrapv1.NoAgentReason), "it can be without the config server for ever")

		By("upgrading Poolboot")
		w.force = "what the new manager writes otherwise"
		second := offer("v0.2.0")
		annotate("example.com/changed")
		Expect(document()).To(Equal(booted(second)))
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.OfferedAnnotation, assignment.Revision(document())))

		By("starting its agent")
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.AgentAnnotation] = "v0.1.0" })
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, assignment.Revision(document())))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, assignment.Revision(newDocument(config, "rendered-worker-2", w.force))), "it follows its pool")
	})
})
