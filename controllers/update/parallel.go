package update

import (
	"errors"

	"golang.org/x/sync/errgroup"
)

// maxParallel is how many hosts of a pool are written at the same time. A wave of a large pool is told in about a
// second, and the requests of other controllers are not delayed by more than that many.
const maxParallel = 16

// inParallel does something for each of the items, for up to limit of them at the same time. One error does not stop
// the others. The writes for one item are those of one call, so they keep their order, and a crash leaves each item
// where it could also have stopped alone.
func inParallel[Item any](items []Item, limit int, do func(Item) error) error {
	errs := make([]error, len(items))
	var group errgroup.Group
	group.SetLimit(max(limit, 1))
	for i, item := range items {
		group.Go(func() error {
			errs[i] = do(item)
			return nil
		})
	}
	_ = group.Wait() // errs has all of them
	return errors.Join(errs...)
}
