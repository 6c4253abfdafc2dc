package update

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// noticedContext notices that somebody waits for its end.
type noticedContext struct {
	context.Context
	isAwaited *atomic.Bool
}

// Done implements context.Context.
func (c noticedContext) Done() <-chan struct{} {
	c.isAwaited.Store(true)
	return c.Context.Done()
}

var _ = Describe("The lists of VolumeAttachments of a Cluster", func() {
	var (
		shared *attachments
		server client.WithWatch
		// began receives the number of each list when the API server has read it, and answer lets it answer.
		began  chan int
		answer chan error
		lists  int
		// isAwaited is true once somebody waits for a turn to list.
		isAwaited atomic.Bool
	)
	attach := func(ctx context.Context, name, node string) {
		GinkgoHelper()
		a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		a.Spec.NodeName, a.Status.Attached = node, true
		Expect(server.Create(ctx, a)).To(Succeed())
	}
	BeforeEach(func() {
		shared, lists, began, answer = &attachments{}, 0, make(chan int, 10), make(chan error)
		isAwaited.Store(false)
		server = interceptor.NewClient(controllertest.NewClientBuilder().Build(), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...) // only one at a time, so nothing else counts
				lists++
				began <- lists
				answered, ok := <-answer
				if !ok {
					panic("a list")
				}
				return errors.Join(err, answered)
			},
		})
	})
	const failed, panicked = -1, -2
	// ask asks for the volumes of a Node, and returns a channel with how many there are, failed or panicked.
	ask := func(ctx context.Context, node string) <-chan int {
		result := make(chan int, 1)
		go func() {
			defer GinkgoRecover()
			defer func() {
				if recover() != nil {
					result <- panicked
				}
			}()
			attached, err := shared.ofNode(noticedContext{ctx, &isAwaited}, server, clusterKey, node)
			if err != nil {
				result <- failed
				return
			}
			result <- len(attached)
		}()
		return result
	}

	It("are shared by all drains that asked before the list began, and never older than a drain", func(ctx SpecContext) {
		attach(ctx, "a", "host-0")
		first := ask(ctx, "host-0")
		Eventually(began).Should(Receive(Equal(1)))
		attach(ctx, "b", "host-1")
		var later []<-chan int
		for range 50 {
			later = append(later, ask(ctx, "host-1"))
		}
		Consistently(began, 100*time.Millisecond).ShouldNot(Receive(), "there is one list at a time")
		answer <- nil
		Eventually(first).Should(Receive(Equal(1)))
		Eventually(began).Should(Receive(Equal(2)))
		answer <- nil
		for _, result := range later {
			Eventually(result).Should(Receive(Equal(1)), "it asked after the first list began, which does not have the volume")
		}
		Expect(lists).To(Equal(2))
	})

	It("fail for all who share it, and not for those who ask then", func(ctx SpecContext) {
		attach(ctx, "a", "host-0")
		first := ask(ctx, "host-0")
		Eventually(began).Should(Receive())
		answer <- errors.New("no answer")
		Eventually(first).Should(Receive(Equal(failed)))
		second := ask(ctx, "host-0")
		Eventually(began).Should(Receive())
		answer <- nil
		Eventually(second).Should(Receive(Equal(1)))
	})

	It("fail for those who share one that panics", func(ctx SpecContext) {
		first := ask(ctx, "host-0")
		Eventually(began).Should(Receive())
		isAwaited.Store(false)
		leader := ask(ctx, "host-0")
		Eventually(isAwaited.Load).Should(BeTrue())
		isAwaited.Store(false)
		other := ask(ctx, "host-0")
		Eventually(isAwaited.Load).Should(BeTrue())
		Consistently(other, 100*time.Millisecond).ShouldNot(Receive())
		answer <- nil
		Eventually(first).Should(Receive(Equal(0)))
		Eventually(began).Should(Receive())
		close(answer)
		results := make([]int, 2)
		Eventually(leader).Should(Receive(&results[0]))
		Eventually(other).Should(Receive(&results[1]))
		Expect(results).To(ConsistOf(panicked, failed), "a Node without volumes would be rebooted")
	})

	It("are not waited for longer than a reconcile lasts", func(ctx SpecContext) {
		first := ask(ctx, "host-0")
		Eventually(began).Should(Receive())
		isAwaited.Store(false)
		second := ask(ctx, "host-0")
		Eventually(isAwaited.Load).Should(BeTrue())
		short, cancel := context.WithCancel(ctx)
		third := ask(short, "host-0")
		cancel()
		Eventually(third).Should(Receive(Equal(failed)))
		answer <- nil
		Eventually(first).Should(Receive(Equal(0)))
		Eventually(began).Should(Receive())
		answer <- nil
		Eventually(second).Should(Receive(Equal(0)))
	})
})
