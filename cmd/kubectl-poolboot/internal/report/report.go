// Package report is the command kubectl poolboot report: it prints one HTML page of the fleet, without references to
// anything else. What it says of pools, hosts and boots is what rollout status and boots say.
package report

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command line.
type options struct {
	streams    genericiooptions.IOStreams
	all, watch bool
	port       int
}

// New returns the command report.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use:   "report [-n NAMESPACE | -A] [--watch [--port PORT]]",
		Short: "Print a page with the pools, hosts, boots and updates",
		Long: `Print one HTML page with pools and their hosts by failure domain, boots and updates as bars, which config runs where,
drift, hosts that need you to act, and tokens and certificates that expire. The page is complete in itself: it loads
nothing. It lists what can't be read, such as the Nodes of a workload cluster that does not answer.

The failure domain of a host is the value of the label in spec.updates.failureDomainLabel of its pool on its Node, or
else of topology.kubernetes.io/zone, or else the failure domain of its Machine.

With --watch, serve the page on 127.0.0.1 until interrupted. An open browser refreshes it.`,
		Example: `  # All namespaces, for a browser or a printer
  kubectl poolboot report -A > report.html

  # A page that stays up to date
  kubectl poolboot report -n metal --watch`,
		Args:                  cobra.NoArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("port") && !o.watch {
				return errors.New("--port needs --watch: set both, or leave out --port")
			}
			cluster, err := to.Open()
			if err != nil {
				return err
			}
			if o.watch {
				return o.serve(cmd.Context(), cluster)
			}
			page, err := o.render(cmd.Context(), cluster)
			if err == nil {
				_, err = o.streams.Out.Write(page)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "show all namespaces")
	cli.AddWatchFlag(cmd, &o.watch, "interrupted: serve the page on 127.0.0.1")
	cmd.Flags().IntVar(&o.port, "port", 0, "port of --watch; 0 for a free one")
	input.AddConnectionFlags(cmd, to)
	cli.AddCompletion(cmd, "port", cobra.NoFileCompletions)
	return cmd
}

func (o *options) render(ctx context.Context, cluster *input.Cluster) ([]byte, error) {
	namespace := cluster.Namespace
	if o.all {
		namespace = ""
	}
	read, err := readFleet(ctx, cluster, namespace)
	if err != nil {
		return nil, err
	}
	return read.render(time.Now(), o.watch)
}

// interval is the shortest time between two reads of the cluster, and how often watch.js requests the page.
const interval = 10 * time.Second

//go:embed watch.js
var watchScript []byte

// serve serves the page on loopback until ctx is done.
func (o *options) serve(ctx context.Context, cluster *input.Cluster) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("--port %d: %w: set another port", o.port, err)
	}
	var mu sync.Mutex
	var page []byte
	var failure error
	var since time.Time
	current := func() ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(since) >= interval {
			page, failure = o.render(ctx, cluster)
			since = time.Now()
		}
		return page, failure
	}
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		page, err := current()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	pages.HandleFunc("GET /watch.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(watchScript)
	})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise a page on the internet could read this one, by a name that resolves to 127.0.0.1.
		if host := (&url.URL{Host: r.Host}).Hostname(); host != "127.0.0.1" && host != "localhost" {
			http.Error(w, "use the URL that kubectl poolboot report printed", http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Fprintf(o.streams.Out, "The report is at http://%s/ until you interrupt this command.\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
