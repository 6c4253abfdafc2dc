package update

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

var _ = Describe("An adopted host", func() {
	// changeHost changes what the record of a host says about the host itself.
	changeHost := func(ctx context.Context, w *world, i int, change func(*bootstrapv1.PoolbootConfig)) {
		GinkgoHelper()
		config := w.config(ctx, i)
		change(config)
		config.Generation++
		status := config.Status.DeepCopy()
		Expect(w.management.Update(ctx, config)).To(Succeed())
		config.Status = *status
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
	}
	sets := func(policy bootstrapv1.AdoptionPolicy) func(*bootstrapv1.PoolbootConfig) {
		return func(config *bootstrapv1.PoolbootConfig) { config.Spec.Host.Adoption = policy }
	}
	// begin returns a world with a host that was adopted beside one that Poolboot booted.
	begin := func(ctx context.Context) *world {
		GinkgoHelper()
		w := newWorld(2)
		w.reconciler.Offer = func() (join.Offer, error) {
			return join.Offer{Agent: assignment.Agent{Version: "v0.1.0", SHA512: map[string]string{"amd64": "v0.1.0"}}}, nil
		}
		changeHost(ctx, w, 0, func(config *bootstrapv1.PoolbootConfig) {
			config.Spec.PoolRole, config.Spec.Join = poolv1.RoleWorker, bootstrapv1.Join{}
			config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: hostName(0), Adoption: bootstrapv1.AdoptionPreview}
			config.Annotations[bootstrapv1.PointerIDAnnotation] = bootstrapv1.AdoptedPointerID
			config.Status.Boot.ServedConfiguration.Name = ""
		})
		Expect(w.management.Delete(ctx, secretOf(w.config(ctx, 0), nil))).To(Succeed())
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			delete(node.Annotations, agentv1.AgentAnnotation)
			delete(node.Annotations, agentv1.ReportVersionAnnotation)
			delete(node.Labels, poolv1.NodeRoleLabelPrefix+poolv1.RoleWorker)
		})
		w.settle(ctx)
		w.reports(ctx, 1, agentv1.Done, revisionOf(1, "rendered-worker-1"), "")
		w.settle(ctx)
		return w
	}
	starts := func(ctx context.Context, w *world) (asFound string) {
		GinkgoHelper()
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.AgentAnnotation], node.Annotations[agentv1.ReportVersionAnnotation] = "v0.1.0", "1"
		})
		w.settle(ctx)
		asFound = w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]
		w.reports(ctx, 0, agentv1.Done, asFound, "")
		w.settle(ctx)
		return asFound
	}

	It("is offered an agent, and named with the command that installs it", func(ctx SpecContext) {
		w := begin(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.OfferedAnnotation))
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DesiredAnnotation))
		updated := w.updated(ctx, 0)
		Expect(updated.Reason).To(Equal(bootstrapv1.NoAgentReason))
		Expect(updated.Message).To(Equal("the host of Node " + hostName(0) + " runs no agent yet: kubectl poolboot install-agent " + hostName(0) + " -n " + clusterKey.Namespace +
			" prints the script that installs it on the host, and with --format kubeadm what brings it to new Machines"))
	})

	It("is told to be as it was found, previews what its pool would change, and takes no part in rollouts until somebody agrees", func(ctx SpecContext) {
		w := begin(ctx)
		asFound := starts(ctx, w)
		Expect(w.config(ctx, 0).Status.Update.Desired.Name).To(Equal(agentv1.AsFoundConfig))
		next := w.node(ctx, 0).Annotations[agentv1.NextAnnotation]
		Expect(next).NotTo(Or(BeEmpty(), Equal(asFound)))
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("Its agent compares it with its pool"))
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.StagingAnnotation] = next
			node.Annotations[agentv1.PreviewAnnotation] = next + " Reboot\n/etc/a: Content\n/etc/b: Missing"
		})
		w.render(ctx, "rendered-worker-1") // nothing new
		w.settle(ctx)
		updated := w.updated(ctx, 0)
		Expect(updated.Status).To(Equal(metav1.ConditionFalse))
		Expect(updated.Reason).To(Equal(bootstrapv1.AdoptionPreviewReason))
		Expect(updated.Message).To(ContainSubstring("with the effect Reboot: /etc/a: Content; /etc/b: Missing. To agree, set spec.host.adoption of PoolbootConfig " + hostName(0)))
		Expect(w.slots(ctx)).NotTo(ContainElement(hostName(0)))
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(asFound))

		changeHost(ctx, w, 0, sets(bootstrapv1.AdoptionFollow))
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			metav1.SetMetaDataLabel(&node.ObjectMeta, poolv1.NodeRoleLabelPrefix+poolv1.RoleWorker, "")
		})
		w.settle(ctx)
		Expect(w.slots(ctx)).To(ContainElement(hostName(0)))
		Expect(w.node(ctx, 0).Annotations[agentv1.BegunAnnotation]).To(Equal(revisionOf(0, "rendered-worker-1")))
		w.reports(ctx, 0, agentv1.Done, revisionOf(0, "rendered-worker-1"), "")
		w.settle(ctx)
		Expect(conditions.IsTrue(w.config(ctx, 0), bootstrapv1.UpdatedCondition)).To(BeTrue())

		changeHost(ctx, w, 0, sets(bootstrapv1.AdoptionPreview))
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.NextAnnotation]).To(Equal(asFound))
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.StagingAnnotation] = asFound })
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.BegunAnnotation]).To(Equal(asFound), "it returns by a slot of its pool")
		w.reports(ctx, 0, agentv1.Done, asFound, "")
		w.settle(ctx)
		Expect(w.slots(ctx)).NotTo(ContainElement(hostName(0)))
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.AdoptionPreviewReason))
	})

	It("can get what it is told to be before it compares anything, also when its agent is installed again", func(ctx SpecContext) {
		w := begin(ctx)
		expectAsFound := func() {
			GinkgoHelper()
			w.settle(ctx)
			secret := secretOf(w.config(ctx, 0), nil)
			Expect(w.management.Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
			Expect(assignment.Revision(secret.Data[bootstrapv1.AssignmentKey])).To(Equal(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]))
			Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.NextAnnotation))
		}
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.AgentAnnotation], node.Annotations[agentv1.ReportVersionAnnotation] = "v0.1.0", "1"
		})
		expectAsFound()
		starts(ctx, w)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.NextAnnotation))
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			delete(node.Annotations, agentv1.CurrentAnnotation)
			delete(node.Annotations, agentv1.StateAnnotation)
		})
		expectAsFound()
	})

	It("is told why it can't be compared with its pool", func(ctx SpecContext) {
		w := begin(ctx)
		w.reconciler.document = func(context.Context, *host, poolContext) ([]byte, error) {
			return nil, errors.New("its extraConfig is wrong")
		}
		starts(ctx, w)
		Expect(w.updated(ctx, 0).Message).To(HaveSuffix("It can't be compared with its pool: its extraConfig is wrong"))
	})

	It("is not told what was only previewed if its record and its reports are lost", func(ctx SpecContext) {
		w := begin(ctx)
		asFound := starts(ctx, w)
		changeHost(ctx, w, 0, func(config *bootstrapv1.PoolbootConfig) { config.Status.Update = bootstrapv1.UpdateStatus{} })
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			for _, name := range append(agentv1.Reports, agentv1.DesiredAnnotation, agentv1.DesiredConfigAnnotation, agentv1.NextAnnotation) {
				delete(node.Annotations, name)
			}
			node.Annotations[agentv1.AgentAnnotation], node.Annotations[agentv1.ReportVersionAnnotation] = "v0.1.0", "1"
		})
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(asFound))
	})
})
