package boots

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// follow prints every boot that changes after configs were listed, until ctx is done. A watch that ends is resumed;
// when its resource version is too old, follow lists all boots again.
func (o *options) follow(ctx context.Context, live client.WithWatch, configs *bootstrapv1.PoolbootConfigList, selection []client.ListOption) error {
	last := map[string]Boot{}
	for ctx.Err() == nil {
		changes, err := watchtools.NewRetryWatcherWithContext(ctx, configs.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return live.Watch(ctx, &bootstrapv1.PoolbootConfigList{}, append(slices.Clone(selection), &client.ListOptions{Raw: &options})...)
			},
		})
		if err != nil {
			return err
		}
		for _, b := range o.selected(List(configs.Items)) {
			last[b.key()] = b
		}
		err = o.watch(changes, last)
		changes.Stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
		if err := live.List(ctx, configs, selection...); err != nil {
			return fmt.Errorf("list PoolbootConfigs: %w", err)
		}
		boots := o.selected(List(configs.Items))
		if err := o.show(boots...); err != nil {
			return err
		}
		for key, b := range last {
			if slices.ContainsFunc(boots, func(b Boot) bool { return b.key() == key }) {
				continue
			}
			delete(last, key)
			if err := o.showDeleted(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// watch prints changes until the watch ends. A resource version that is too old is no error.
func (o *options) watch(changes watch.Interface, last map[string]Boot) error {
	for {
		select {
		case <-o.view.Refresh():
			if err := o.show(slices.Collect(maps.Values(last))...); err != nil {
				return err
			}
		case event, open := <-changes.ResultChan():
			if !open {
				return nil
			}
			config, ok := event.Object.(*bootstrapv1.PoolbootConfig)
			if !ok {
				if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
					return err
				}
				return nil
			}
			for _, b := range o.selected([]Boot{newBoot(config)}) {
				show := o.show
				if last[b.key()] = b; event.Type == watch.Deleted {
					delete(last, b.key())
					show = func(...Boot) error { return o.showDeleted(b) }
				}
				if err := show(b); err != nil {
					return err
				}
			}
		}
	}
}

// showDeleted prints a boot whose PoolbootConfig was deleted.
func (o *options) showDeleted(b Boot) error {
	b.Stage, b.Since, b.Message = deletedStage, time.Now(), ""
	defer o.view.Forget(b.key())
	return o.show(b)
}

// key identifies a boot, in the order of tables.
func (b Boot) key() string {
	return strings.Join([]string{b.Namespace, b.Machine, b.PoolbootConfig}, "\x00")
}

// newView returns the table of boots, which has more columns if it is wide.
func (o *options) newView() *cli.View {
	header := []string{"MACHINE", "HOST", "POOL", "STAGE", "SINCE", "AGE"}
	if o.output.Format == cli.FormatWide {
		header = append(header, "CLUSTER", "NODE", "CONFIG", "DESIRED", "UPDATE", "TOKEN FROM")
	}
	if o.all {
		header = slices.Insert(header, 0, "NAMESPACE")
	}
	return &cli.View{Out: o.streams.Out, Output: &o.output, Watch: o.watching, Header: append(header, "MESSAGE")}
}

// show prints boots that have changed.
func (o *options) show(boots ...Boot) error {
	now := time.Now()
	rows := make([]cli.Row, len(boots))
	for i, b := range boots {
		cells := []string{b.Machine, b.Host, b.Pool, string(b.Stage), duration.HumanDuration(now.Sub(b.Since)), duration.HumanDuration(now.Sub(b.Created))}
		if o.output.Format == cli.FormatWide {
			cells = append(cells, b.Cluster, b.Node, b.Configuration, b.Desired, b.Update, JoinAddresses(b.Addresses, ","))
		}
		if o.all {
			cells = slices.Insert(cells, 0, b.Namespace)
		}
		var color cli.Color
		switch {
		case b.needsPerson || b.Stage == record.StageNotReady:
			color = cli.Red
		case b.Stage == record.StageReady:
			color = cli.Green
		}
		rows[i] = cli.Row{Key: b.key(), Object: b, Name: "poolbootconfig." + bootstrapv1.GroupVersion.Group + "/" + b.PoolbootConfig,
			Cells: append(cells, b.Message), Colors: map[string]cli.Color{"STAGE": color}}
	}
	return o.view.Show(rows...)
}
