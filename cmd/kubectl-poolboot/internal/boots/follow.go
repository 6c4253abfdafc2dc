package boots

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// follow prints every boot that changes after configs were listed, until ctx is done. A watch that ends is resumed;
// when its resource version is too old, follow lists all boots again.
func follow(ctx context.Context, live client.WithWatch, configs *bootstrapv1.PoolbootConfigList, selection []client.ListOption, show func([]boot) error) error {
	f := &followed{last: map[client.ObjectKey]boot{}, show: show}
	for i := range configs.Items {
		f.last[client.ObjectKeyFromObject(&configs.Items[i])] = bootOf(&configs.Items[i])
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
		if err := f.listed(configs); err != nil {
			return err
		}
	}
	return nil
}

// followed are boots as they were last printed.
type followed struct {
	last map[client.ObjectKey]boot
	show func([]boot) error
}

// watch prints changes until the watch ends. A resource version that is too old is no error.
func (f *followed) watch(changes watch.Interface) error {
	for event := range changes.ResultChan() {
		config, ok := event.Object.(*bootstrapv1.PoolbootConfig)
		if !ok {
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				err = nil
			}
			return err
		}
		report := f.changed
		if event.Type == watch.Deleted {
			report = f.deleted
		}
		if err := report(client.ObjectKeyFromObject(config), bootOf(config)); err != nil {
			return err
		}
	}
	return nil
}

// listed prints what changed while there was no watch.
func (f *followed) listed(configs *bootstrapv1.PoolbootConfigList) error {
	exists := map[client.ObjectKey]bool{}
	for i := range configs.Items {
		key := client.ObjectKeyFromObject(&configs.Items[i])
		exists[key] = true
		if err := f.changed(key, bootOf(&configs.Items[i])); err != nil {
			return err
		}
	}
	for key, b := range f.last {
		if !exists[key] {
			if err := f.deleted(key, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *followed) changed(key client.ObjectKey, b boot) error {
	if before, known := f.last[key]; known && before.equal(b) {
		return nil
	}
	f.last[key] = b
	return f.show([]boot{b})
}

func (f *followed) deleted(key client.ObjectKey, b boot) error {
	delete(f.last, key)
	b.Stage, b.Since, b.Message = deletedStage, time.Now(), ""
	return f.show([]boot{b})
}

// equal reports whether everything that is printed of a boot is the same.
func (b boot) equal(other boot) bool {
	sameMoment := func(a, b record.Moment) bool { return a.Step == b.Step && a.Time.Equal(b.Time) }
	return b.Host == other.Host && b.Node == other.Node && b.Pool == other.Pool && b.Configuration == other.Configuration && b.Machine == other.Machine &&
		b.Stage == other.Stage && b.Since.Equal(other.Since) && b.Message == other.Message && slices.Equal(b.Addresses, other.Addresses) && slices.EqualFunc(b.Timeline, other.Timeline, sameMoment)
}

// table prints boots as kubectl prints objects, with one header.
type table struct {
	out              io.Writer
	wide, namespaces bool
	hasHeader        bool
}

func (t *table) print(boots []boot) error {
	rows := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Machine", Type: "string"}, {Name: "Host", Type: "string"}, {Name: "Pool", Type: "string"}, {Name: "Stage", Type: "string"},
		{Name: "Since", Type: "string"}, {Name: "Age", Type: "string"},
		{Name: "Cluster", Type: "string", Priority: 1}, {Name: "Node", Type: "string", Priority: 1}, {Name: "Config", Type: "string", Priority: 1},
		{Name: "Token From", Type: "string", Priority: 1},
		{Name: "Message", Type: "string"},
	}}
	now := time.Now()
	for _, b := range boots {
		rows.Rows = append(rows.Rows, metav1.TableRow{
			Cells: []any{
				cmp.Or(b.Machine, cli.None), cmp.Or(b.Host, cli.None), cmp.Or(b.Pool, cli.None), string(b.Stage),
				duration.HumanDuration(now.Sub(b.Since)), duration.HumanDuration(now.Sub(b.Created)),
				cmp.Or(b.Cluster, cli.None), cmp.Or(b.Node, cli.None), cmp.Or(b.Configuration, cli.None), cmp.Or(JoinAddresses(b.Addresses, ","), cli.None), cli.Printable(b.Message),
			},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace}}},
		})
	}
	printer := printers.NewTablePrinter(printers.PrintOptions{WithNamespace: t.namespaces, Wide: t.wide, NoHeaders: t.hasHeader})
	t.hasHeader = true
	return printer.PrintObj(rows, t.out)
}
