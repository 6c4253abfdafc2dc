// Package management runs a management cluster of real Nodes: hosts in Linux namespaces that join with the real
// kubeadm. Their Pods run in the real containerd, and have Services by kube-proxy, and routes and enforced
// NetworkPolicies by kube-router. The control plane runs on this machine.
package management

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/util"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
)

// Options are the options of a management cluster.
type Options struct {
	// Rack has the cluster's hosts, and its network. It can have other hosts too.
	Rack *baremetal.Rack
	// Dir is the directory of the cluster's files and disks. It is created if it is missing.
	Dir string
	// Nodes is the number of Nodes. Default: 3.
	Nodes int
	// Log gets the hosts' consoles. Optional.
	Log io.Writer
}

// Cluster is a running management cluster.
type Cluster struct {
	*controlplane.ControlPlane
	// Rack is the rack of the cluster's hosts.
	Rack *baremetal.Rack
	// Nodes are the hosts of the cluster's Nodes, which are named management-0 and so on.
	Nodes []*baremetal.Host

	clients *kubernetes.Clientset
	end     context.CancelFunc // ends balance
	images  string             // a folder that all hosts can read
}

// imagesOnHosts is where hosts see the folder of images.
const imagesOnHosts = "/usr/share/images"

// startTimeout is the maximum time until all Nodes are ready.
const startTimeout = 3 * time.Minute

// Start starts a management cluster and waits until its Nodes are ready. On error it stops everything that it has
// started.
func Start(ctx context.Context, options Options) (_ *Cluster, err error) {
	c := &Cluster{Rack: options.Rack, images: filepath.Join(options.Dir, "images")}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the management cluster: %w", err), c.Stop())
		}
	}()
	if err := os.MkdirAll(c.images, 0o755); err != nil {
		return nil, err
	}
	pods, err := podNetwork(options.Rack)
	if err != nil {
		return nil, err
	}
	if c.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{
		Name: "management", Dir: filepath.Join(options.Dir, "control-plane"), Host: options.Rack.Address(), ControllerManager: true, PodNetwork: pods,
	}); err != nil {
		return nil, err
	}
	if err := c.StartScheduler(); err != nil {
		return nil, err
	}
	if c.clients, err = kubernetes.NewForConfig(c.Config); err != nil {
		return nil, err
	}
	if err := kubeadm.Init(ctx, c.ControlPlane, joinToken); err != nil {
		return nil, err
	}
	if err := grantRights(ctx, c.clients); err != nil {
		return nil, err
	}
	for i := range cmp.Or(options.Nodes, 3) {
		name := fmt.Sprintf("management-%d", i)
		host, err := options.Rack.NewHost(baremetal.HostOptions{
			Name: name, Dir: filepath.Join(options.Dir, name), Log: options.Log, Folders: map[string]string{imagesOnHosts: c.images},
		})
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, host)
		userData, err := c.userData()
		if err != nil {
			return nil, err
		}
		if err := errors.Join(host.Deploy(baremetal.NodeImage, userData), host.PowerOn(context.WithoutCancel(ctx))); err != nil {
			return nil, err
		}
	}
	if err := c.onAllNodes(ctx, c.waitForNode); err != nil {
		return nil, err
	}
	balancing, end := context.WithCancel(context.WithoutCancel(ctx))
	c.end = end
	return c, c.balance(balancing)
}

// Stop cuts the power of the Nodes and stops the control plane. It does not close the rack.
func (c *Cluster) Stop() error {
	if c.end != nil {
		c.end()
	}
	var errs []error
	for _, host := range c.Nodes {
		errs = append(errs, host.PowerCut())
	}
	if c.ControlPlane != nil {
		errs = append(errs, c.ControlPlane.Stop())
	}
	return errors.Join(errs...)
}

// LoadImages imports an archive of container images on all Nodes.
func (c *Cluster) LoadImages(ctx context.Context, archive string) error {
	name := fmt.Sprintf("%d.tar", time.Now().UnixNano())
	if output, err := exec.CommandContext(ctx, "cp", archive, filepath.Join(c.images, name)).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", archive, err, output)
	}
	defer os.Remove(filepath.Join(c.images, name))
	return c.onAllNodes(ctx, func(ctx context.Context, host *baremetal.Host) error {
		_, err := host.Run(ctx, "/opt/containerd/bin/ctr", "--namespace=k8s.io", "images", "import", "--local", imagesOnHosts+"/"+name)
		return err
	})
}

// ServiceAddress returns the IP address in the rack's network that the cluster's Service of type LoadBalancer gets. The
// first Node has it.
func (c *Cluster) ServiceAddress() string {
	return netip.MustParseAddr(c.Rack.Address()).Next().String()
}

// balance gives Services of type LoadBalancer their address until ctx is done, as a load balancer for bare metal does.
func (c *Cluster) balance(ctx context.Context) error {
	if _, err := c.Nodes[0].Run(ctx, "ip", "address", "add", c.ServiceAddress()+"/32", "dev", "eth0"); err != nil {
		return err
	}
	give := func(object any) {
		service := object.(*corev1.Service).DeepCopy()
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 {
			return
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: c.ServiceAddress()}}
		_, err := c.clients.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			panic(fmt.Sprintf("address of Service %s/%s: %v", service.Namespace, service.Name, err))
		}
	}
	informers := informers.NewSharedInformerFactory(c.clients, 0)
	_, err := informers.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: give, UpdateFunc: func(_, service any) { give(service) },
	})
	informers.Start(ctx.Done())
	return err
}

// waitForNode waits until a host is a Node that is ready, and leads this machine's connections with the Node's Pods
// there.
func (c *Cluster) waitForNode(ctx context.Context, host *baremetal.Host) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		if err := host.Err(); err != nil {
			return false, err
		}
		var node *corev1.Node
		if node, last = c.clients.CoreV1().Nodes().Get(ctx, host.Name(), metav1.GetOptions{}); last != nil {
			return false, nil //nolint:nilerr // it is tried again
		}
		last = errors.New("it is not ready")
		if !util.IsNodeReady(node) || node.Spec.PodCIDR == "" {
			return false, nil
		}
		output, err := exec.CommandContext(ctx, "ip", "route", "replace", node.Spec.PodCIDR, "via", host.Address()).CombinedOutput()
		if err != nil {
			return false, fmt.Errorf("route to the Pods: %w: %s", err, output)
		}
		return true, nil
	})
	if err != nil {
		console, _ := host.Console()
		return fmt.Errorf("the Node %s: %w; last error: %w\n%s", host.Name(), err, last, console)
	}
	return nil
}

func (c *Cluster) onAllNodes(ctx context.Context, do func(context.Context, *baremetal.Host) error) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, host := range c.Nodes {
		all.Go(func() error { return do(ctx, host) })
	}
	return all.Wait()
}

// podNetwork returns a network for the Pods of a rack, which no other rack has: 10.128.0.0/16 for the first one.
func podNetwork(rack *baremetal.Rack) (string, error) {
	address, err := netip.ParseAddr(rack.Address())
	if err != nil {
		return "", err
	}
	bytes := address.As4()
	return fmt.Sprintf("10.%d.0.0/16", 128+16*(int(bytes[1])&1)+int(bytes[2])>>4), nil
}
