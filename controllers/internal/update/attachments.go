package update

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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
	clusters sync.Map // client.ObjectKey → *attachmentList
}

// attachmentList is the last list of the VolumeAttachments of a Cluster.
type attachmentList struct {
	// turn is acquired by the one who lists, or reads the list.
	turn *semaphore.Weighted
	// began is when the list began. byNode has the VolumeAttachments of attached volumes by the names of the Nodes, which
	// must not be changed.
	began  time.Time
	byNode map[string][]storagev1.VolumeAttachment
	err    error
}

// errNotListed is the error of a list that did not end.
var errNotListed = errors.New("the list of VolumeAttachments did not end")

// ofNode returns the VolumeAttachments of the volumes that are attached to a Node. They are from a list that began
// after the call. live reads from the API server of the Cluster.
func (a *attachments) ofNode(ctx context.Context, live client.Reader, cluster client.ObjectKey, node string) ([]storagev1.VolumeAttachment, error) {
	asked := time.Now()
	known, _ := a.clusters.LoadOrStore(cluster, &attachmentList{turn: semaphore.NewWeighted(1)})
	list := known.(*attachmentList)
	if err := list.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer list.turn.Release(1)
	if list.began.Before(asked) {
		list.began, list.byNode, list.err = time.Now(), nil, errNotListed
		list.byNode, list.err = listAttachments(ctx, live)
	}
	return list.byNode[node], list.err
}

func listAttachments(ctx context.Context, live client.Reader) (map[string][]storagev1.VolumeAttachment, error) {
	byNode, next := map[string][]storagev1.VolumeAttachment{}, ""
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
