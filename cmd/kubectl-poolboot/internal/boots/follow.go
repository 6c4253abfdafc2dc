package boots

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// follow prints every boot that changes after configs were listed, until ctx is done. A watch that ends is resumed;
// when its resource version is too old, follow lists all boots again.
func follow(ctx context.Context, live client.WithWatch, configs *bootstrapv1.PoolbootConfigList, selection []client.ListOption, show func([]Boot) error) error {
	f := &follower{last: map[client.ObjectKey]Boot{}, show: show}
	for i := range configs.Items {
		f.last[client.ObjectKeyFromObject(&configs.Items[i])] = newBoot(&configs.Items[i])
	}
	for ctx.Err() == nil {
		changes, err := watchtools.NewRetryWatcherWithContext(ctx, configs.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return live.Watch(ctx, &bootstrapv1.PoolbootConfigList{}, append(slices.Clone(selection), &client.ListOptions{Raw: &options})...)
			},
		})
		if err != nil {
			return err
		}
		err = f.watch(changes)
		changes.Stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
		if err := live.List(ctx, configs, selection...); err != nil {
			return err
		}
		if err := f.printList(configs); err != nil {
			return err
		}
	}
	return nil
}

// follower prints changes of boots. It keeps the boots as it last printed them.
type follower struct {
	last map[client.ObjectKey]Boot
	show func([]Boot) error
}

// watch prints changes until the watch ends. A resource version that is too old is no error.
func (f *follower) watch(changes watch.Interface) error {
	for event := range changes.ResultChan() {
		config, ok := event.Object.(*bootstrapv1.PoolbootConfig)
		if !ok {
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return err
			}
			return nil
		}
		printEvent := f.printChange
		if event.Type == watch.Deleted {
			printEvent = f.printDeletion
		}
		if err := printEvent(client.ObjectKeyFromObject(config), newBoot(config)); err != nil {
			return err
		}
	}
	return nil
}

// printList prints what changed while there was no watch.
func (f *follower) printList(configs *bootstrapv1.PoolbootConfigList) error {
	deleted := maps.Clone(f.last)
	for i := range configs.Items {
		key := client.ObjectKeyFromObject(&configs.Items[i])
		delete(deleted, key)
		if err := f.printChange(key, newBoot(&configs.Items[i])); err != nil {
			return err
		}
	}
	for key, b := range deleted {
		if err := f.printDeletion(key, b); err != nil {
			return err
		}
	}
	return nil
}

func (f *follower) printChange(key client.ObjectKey, b Boot) error {
	if before, ok := f.last[key]; ok && before.equal(b) {
		return nil
	}
	f.last[key] = b
	return f.show([]Boot{b})
}

func (f *follower) printDeletion(key client.ObjectKey, b Boot) error {
	delete(f.last, key)
	b.Stage, b.Since, b.Message = deletedStage, time.Now(), ""
	return f.show([]Boot{b})
}

// equalities compare the fields of boots.
var equalities = conversion.EqualitiesOrDie(time.Time.Equal)

// equal reports whether everything that is printed of a boot is the same.
func (b Boot) equal(other Boot) bool {
	return equalities.DeepEqual(b, other)
}

// printBoots prints boots in a table, which has more columns if it is wide.
func printBoots(table *cli.Table, withNamespace bool, boots []Boot) error {
	now := time.Now()
	rows := make([][]string, len(boots))
	for i, b := range boots {
		table.Header = []string{"MACHINE", "HOST", "POOL", "STAGE", "SINCE", "AGE"}
		rows[i] = []string{b.Machine, b.Host, b.Pool, string(b.Stage), duration.HumanDuration(now.Sub(b.Since)), duration.HumanDuration(now.Sub(b.Created))}
		if table.Wide {
			table.Header = append(table.Header, "CLUSTER", "NODE", "CONFIG", "DESIRED", "UPDATE", "TOKEN FROM")
			rows[i] = append(rows[i], b.Cluster, b.Node, b.Configuration, b.Desired, b.Update, JoinAddresses(b.Addresses, ","))
		}
		table.Header, rows[i] = append(table.Header, "MESSAGE"), append(rows[i], b.Message)
		if withNamespace {
			table.Header, rows[i] = slices.Insert(table.Header, 0, "NAMESPACE"), slices.Insert(rows[i], 0, b.Namespace)
		}
	}
	return table.Print(rows...)
}
