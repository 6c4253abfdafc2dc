package update

import (
	"context"
	"fmt"
	"math/rand/v2"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// backup has the objects of the management cluster that a rollout changes.
type backup struct {
	configs  bootstrapv1.PoolbootConfigList
	machines clusterv1.MachineList
	pools    poolv1.MachineConfigPoolList
	secrets  corev1.SecretList
}

func (w *world) backUp(ctx context.Context) (b backup) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&b.configs, &b.machines, &b.pools, &b.secrets} {
		Expect(w.management.List(ctx, list)).To(Succeed())
	}
	return b
}

// restore replaces all objects, as the restore of a snapshot of etcd does, and starts another manager. If lost is true,
// what is recorded about updates is lost, and so are the Secrets with the assignments, which no tool copies from
// Poolboot's namespace.
func (w *world) restore(ctx context.Context, b backup, lost bool) {
	GinkgoHelper()
	replace := func(object client.Object) {
		GinkgoHelper()
		current := object.DeepCopyObject().(client.Object)
		Expect(w.management.Get(ctx, client.ObjectKeyFromObject(object), current)).To(Succeed())
		object.SetResourceVersion(current.GetResourceVersion())
		status := object.DeepCopyObject().(client.Object)
		Expect(w.management.Update(ctx, object)).To(Succeed())
		status.SetResourceVersion(object.GetResourceVersion())
		if _, isMachine := object.(*clusterv1.Machine); !isMachine {
			Expect(w.management.Status().Update(ctx, status)).To(Succeed())
		}
	}
	Expect(w.management.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace("poolboot-system"))).To(Succeed())
	for i := range b.configs.Items {
		if lost {
			b.configs.Items[i].Status.Update = bootstrapv1.UpdateStatus{}
			b.configs.Items[i].Status.Conditions = nil
		}
		replace(&b.configs.Items[i])
	}
	for i := range b.machines.Items {
		replace(&b.machines.Items[i])
	}
	for i := range b.pools.Items {
		replace(&b.pools.Items[i])
	}
	for _, secret := range b.secrets.Items {
		if !lost {
			secret.ResourceVersion = ""
			Expect(w.management.Create(ctx, &secret)).To(Succeed())
		}
	}
	w.reconciler = w.newManager(w.Write)
}

var _ = Describe("A rollout during which a backup of the management cluster is restored", func() {
	const hosts, maxUnavailable = 5, 2
	for _, lost := range []bool{false, true} {
		for seed := range uint64(5) {
			It(fmt.Sprintf("updates each host once, and no more at a time than allowed: seed %d, records are lost: %t", seed, lost), func(ctx SpecContext) {
				random := rand.New(rand.NewPCG(seed, 1))
				w := newWorld(hosts)
				w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(maxUnavailable)) })
				w.adopt(ctx)
				w.render(ctx, "rendered-worker-2")
				begun := map[string]int{} // by host and revision

				// agent does the next step of the agent of a host.
				agent := func(i int) {
					node := w.node(ctx, i)
					told, state := node.Annotations[agentv1.DesiredAnnotation], agentv1.State(node.Annotations[agentv1.StateAnnotation])
					isTarget := node.Annotations[agentv1.TargetAnnotation] == told
					switch {
					case isTarget && state == agentv1.Done:
					case !isTarget:
						begun[hostName(i)+" "+told]++
						w.reports(ctx, i, agentv1.Applying, told, "")
						w.changeNode(ctx, i, func(node *corev1.Node) { setReady(node, false) })
					default:
						w.changeNode(ctx, i, func(node *corev1.Node) { setReady(node, true) })
						w.reports(ctx, i, agentv1.Done, told, "")
					}
					away := 0
					for i := range hosts {
						if !util.IsNodeReady(w.node(ctx, i)) {
							away++
						}
					}
					Expect(away).To(BeNumerically("<=", maxUnavailable))
				}
				step := func() {
					switch i := random.IntN(hosts); random.IntN(3) {
					case 0:
						_, _ = w.reconcilePool(ctx) // a conflict is retried
					case 1:
						_, _ = w.reconcileHost(ctx, i)
					default:
						agent(i)
					}
				}
				for range random.IntN(40) {
					step()
				}
				saved := w.backUp(ctx)
				for range random.IntN(150) {
					step()
				}
				w.restore(ctx, saved, lost)
				isDone := func() bool {
					for i := range hosts {
						revision := revisionOf(i, "rendered-worker-2")
						if w.node(ctx, i).Annotations[agentv1.CurrentAnnotation] != revision || w.config(ctx, i).Status.Update.DesiredRevision != revision {
							return false
						}
					}
					return true
				}
				for n := 0; n < 2000 && !isDone(); n++ {
					step()
				}
				Expect(isDone()).To(BeTrue(), "the rollout goes on after the restore")
				Expect(begun).To(HaveLen(hosts), "no host was told another revision: %v", begun)
				Expect(begun).To(HaveEach(1))
			})
		}
	}
})
