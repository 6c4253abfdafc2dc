package main

import (
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/timeline"
)

// follow shows every boot that changes after configs were listed, until ctx ends. A watch that ends is taken up where
// it was; when that is too long ago, all are listed anew.
func follow(ctx context.Context, live client.WithWatch, configs *bootstrapv1.PoolbootConfigList, of []client.ListOption, show func([]bootShown) error) error {
	f := &followed{last: map[client.ObjectKey]bootShown{}, show: show}
	for i := range configs.Items {
		f.last[client.ObjectKeyFromObject(&configs.Items[i])] = bootOf(&configs.Items[i])
	}
	for ctx.Err() == nil {
		changes, err := watchtools.NewRetryWatcherWithContext(ctx, configs.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return live.Watch(ctx, &bootstrapv1.PoolbootConfigList{}, append(of, &client.ListOptions{Raw: &options})...)
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
		if err := live.List(ctx, configs, of...); err != nil {
			return err
		}
		if err := f.listed(configs); err != nil {
			return err
		}
	}
	return nil
}

// followed are boots as they were last shown.
type followed struct {
	last map[client.ObjectKey]bootShown
	show func([]bootShown) error
}

// watch shows changes until there are no more. That the watch began too long ago is no error.
func (f *followed) watch(changes watch.Interface) error {
	for event := range changes.ResultChan() {
		config, is := event.Object.(*bootstrapv1.PoolbootConfig)
		if !is {
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				err = nil
			}
			return err
		}
		show := f.changed
		if event.Type == watch.Deleted {
			show = f.gone
		}
		if err := show(client.ObjectKeyFromObject(config), bootOf(config)); err != nil {
			return err
		}
	}
	return nil
}

// listed shows what changed while nothing was watched.
func (f *followed) listed(configs *bootstrapv1.PoolbootConfigList) error {
	stands := map[client.ObjectKey]bool{}
	for i := range configs.Items {
		key := client.ObjectKeyFromObject(&configs.Items[i])
		stands[key] = true
		if err := f.changed(key, bootOf(&configs.Items[i])); err != nil {
			return err
		}
	}
	for key, boot := range f.last {
		if !stands[key] {
			if err := f.gone(key, boot); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *followed) changed(key client.ObjectKey, boot bootShown) error {
	if before, known := f.last[key]; known && before.same(boot) {
		return nil
	}
	f.last[key] = boot
	return f.show([]bootShown{boot})
}

func (f *followed) gone(key client.ObjectKey, boot bootShown) error {
	delete(f.last, key)
	boot.Stage, boot.Since, boot.Message = deleted, time.Now(), ""
	return f.show([]bootShown{boot})
}

// same says whether nothing that is shown of a boot changed.
func (b bootShown) same(as bootShown) bool {
	sameMoment := func(a, b timeline.Moment) bool { return a.Step == b.Step && a.Time.Equal(b.Time) }
	return b.Host == as.Host && b.Node == as.Node && b.Pool == as.Pool && b.Configuration == as.Configuration && b.Machine == as.Machine &&
		b.Stage == as.Stage && b.Since.Equal(as.Since) && b.Message == as.Message && slices.Equal(b.Addresses, as.Addresses) && slices.EqualFunc(b.Timeline, as.Timeline, sameMoment)
}

// bootsTable prints boots as kubectl prints objects, the head once.
type bootsTable struct {
	out              io.Writer
	wide, namespaces bool
	begun            bool
}

func (t *bootsTable) print(boots []bootShown) error {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Machine", Type: "string"}, {Name: "Host", Type: "string"}, {Name: "Pool", Type: "string"}, {Name: "Stage", Type: "string"},
		{Name: "Since", Type: "string"}, {Name: "Age", Type: "string"},
		{Name: "Cluster", Type: "string", Priority: 1}, {Name: "Node", Type: "string", Priority: 1}, {Name: "Config", Type: "string", Priority: 1},
		{Name: "Token From", Type: "string", Priority: 1},
		{Name: "Message", Type: "string"},
	}}
	now := time.Now()
	for _, boot := range boots {
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells: []any{
				orNone(boot.Machine), orNone(boot.Host), orNone(boot.Pool), string(boot.Stage),
				duration.HumanDuration(now.Sub(boot.Since)), duration.HumanDuration(now.Sub(boot.Created)),
				orNone(boot.Cluster), orNone(boot.Node), orNone(boot.Configuration), orNone(joinAddresses(boot.Addresses, ",")), printable(boot.Message),
			},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: boot.Namespace}}},
		})
	}
	printer := printers.NewTablePrinter(printers.PrintOptions{WithNamespace: t.namespaces, Wide: t.wide, NoHeaders: t.begun})
	t.begun = true
	return printer.PrintObj(table, t.out)
}
