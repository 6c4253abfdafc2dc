package update

import (
	"context"
	"errors"
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageSize is how many VolumeAttachments are read at a time.
	pageSize = 500
	// maxPages limits what is read: an API server of a workload cluster can answer with pages without end.
	maxPages = 400
)

// attachments shares lists of VolumeAttachments. An API server can't select those of one Node, and hundreds of hosts
// can be drained at the same time. So all volumes of a Cluster are listed once at a time, for all drains that asked
// before the list began. The zero value is ready to use.
type attachments struct {
	mu       sync.Mutex
	clusters map[client.ObjectKey]*attachmentQueue
}

// attachmentQueue has the lists of one Cluster.
type attachmentQueue struct {
	// running is locked during a list.
	running sync.Mutex
	// next is the list that has not begun, or nil if nobody waits for one. It is changed only under the lock of the
	// attachments.
	next *attachmentList
}

// attachmentList is a list of VolumeAttachments. Its fields are not changed after done is closed.
type attachmentList struct {
	done   chan struct{}
	byNode attachmentsByNode
	err    error
}

// attachmentsByNode has the VolumeAttachments of attached volumes, by the names of the Nodes. They must not be changed.
type attachmentsByNode map[string][]storagev1.VolumeAttachment

// errNotListed is the error of a list that did not end.
var errNotListed = errors.New("the list of VolumeAttachments did not end")

// ofNode returns the VolumeAttachments of the volumes that are attached to a Node. They are from a list that began
// after the call. live reads from the API server of the Cluster.
func (a *attachments) ofNode(ctx context.Context, live client.Reader, cluster client.ObjectKey, node string) ([]storagev1.VolumeAttachment, error) {
	queue, list, isFirst := a.join(cluster)
	if isFirst {
		a.run(ctx, live, queue, list)
	}
	select {
	case <-list.done:
		return list.byNode[node], list.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// join returns the next list of a Cluster. The first one who joins it must run it.
func (a *attachments) join(cluster client.ObjectKey) (queue *attachmentQueue, list *attachmentList, isFirst bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clusters == nil {
		a.clusters = map[client.ObjectKey]*attachmentQueue{}
	}
	if queue = a.clusters[cluster]; queue == nil {
		queue = &attachmentQueue{}
		a.clusters[cluster] = queue
	}
	if queue.next != nil {
		return queue, queue.next, false
	}
	queue.next = &attachmentList{done: make(chan struct{}), err: errNotListed}
	return queue, queue.next, true
}

// run runs the next list when the one before has ended.
func (a *attachments) run(ctx context.Context, live client.Reader, queue *attachmentQueue, list *attachmentList) {
	queue.running.Lock()
	defer queue.running.Unlock()
	defer close(list.done)
	a.mu.Lock()
	queue.next = nil // who comes now needs another list
	a.mu.Unlock()
	list.byNode, list.err = listAttachments(ctx, live)
}

func listAttachments(ctx context.Context, live client.Reader) (attachmentsByNode, error) {
	byNode, next := attachmentsByNode{}, ""
	for range maxPages {
		page := &storagev1.VolumeAttachmentList{}
		if err := live.List(ctx, page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list VolumeAttachments: %w", err)
		}
		for i := range page.Items {
			if item := &page.Items[i]; item.Status.Attached {
				byNode[item.Spec.NodeName] = append(byNode[item.Spec.NodeName], *item)
			}
		}
		if next = page.Continue; next == "" {
			return byNode, nil
		}
	}
	return nil, fmt.Errorf("list VolumeAttachments: the cluster has more than %d", maxPages*pageSize)
}
