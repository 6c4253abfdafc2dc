package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// The network of Services, and the address in it of the Service kubernetes.
const (
	services       = "10.0.0.0/24"
	serviceAddress = "10.0.0.1"
)

// attempts is the number of starts of a program with different ports if the port is in use.
const attempts = 5

// startEtcd starts etcd without TLS and without syncing to disk, because its data is temporary.
func (c *ControlPlane) startEtcd(ctx context.Context) error {
	return onFreePort(func(port int) (*process.Process, error) {
		peer, err := loopback.FreePort()
		if err != nil {
			return nil, err
		}
		c.etcdURL = "http://" + loopback.Address(port)
		peerURL := "http://" + loopback.Address(peer)
		if c.etcd, err = c.launch("etcd",
			"--data-dir="+c.path("etcd"),
			"--unsafe-no-fsync",
			"--listen-client-urls="+c.etcdURL, "--advertise-client-urls="+c.etcdURL,
			"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL,
			"--initial-cluster=default="+peerURL,
			"--log-level=warn",
		); err != nil {
			return nil, err
		}
		return c.etcd, c.etcd.WaitFor(ctx, func(ctx context.Context) error { return healthy(ctx, c.etcdURL+"/health") })
	})
}

// startFirstAPIServer finds the API server's endpoint and starts it there.
func (c *ControlPlane) startFirstAPIServer(ctx context.Context) error {
	return onFreePort(func(port int) (*process.Process, error) {
		c.Endpoint = net.JoinHostPort(c.host, strconv.Itoa(port))
		if err := c.writeAdmin(); err != nil {
			return nil, err
		}
		err := c.startAPIServer(ctx, port)
		return c.apiServer, err
	})
}

func (c *ControlPlane) startAPIServer(ctx context.Context, port int) error {
	args := []string{
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=" + c.host, "--advertise-address=" + c.host, "--secure-port=" + strconv.Itoa(port),
		"--service-cluster-ip-range=" + services,
		"--tls-cert-file=" + c.path(servingCert), "--tls-private-key-file=" + c.path(servingKey),
		"--client-ca-file=" + c.path(caCert),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path(serviceAccountKey),
		"--service-account-signing-key-file=" + c.path(serviceAccountKey),
		"--authorization-mode=Node,RBAC",
		// The second is enabled in OpenShift: setting an owner reference requires rights on both objects.
		"--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
	}
	if c.pods == "" {
		// A loopback address is not allowed as an endpoint of the Service "kubernetes".
		args = append(args, "--endpoint-reconciler-type=none")
	} else {
		args = append(args, "--endpoint-reconciler-type=lease", "--enable-aggregator-routing",
			"--kubelet-client-certificate="+c.path(kubeletCert), "--kubelet-client-key="+c.path(kubeletKey), "--kubelet-preferred-address-types=InternalIP")
	}
	if c.AuditLog != "" {
		// The maximum size of the log in MiB. After 100, the default, the API server rotates it, and earlier requests
		// would be missing in counts.
		args = append(args, "--audit-log-path="+c.AuditLog, "--audit-policy-file="+c.path(auditPolicy), "--audit-log-maxsize=100000")
	}
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	if c.apiServer, err = c.launch("kube-apiserver", args...); err != nil {
		return err
	}
	return c.apiServer.WaitFor(ctx, func(ctx context.Context) error {
		return clients.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (c *ControlPlane) startControllerManager(ctx context.Context, options Options) error {
	controllers := options.Controllers
	if controllers == nil {
		controllers = []string{"*", "bootstrapsigner", "tokencleaner"}
	}
	if err := c.writeUserKubeconfig("system:kube-controller-manager", managerKubeconfig); err != nil {
		return err
	}
	var network []string
	if c.pods != "" {
		network = []string{"--allocate-node-cidrs", "--cluster-cidr=" + c.pods, "--configure-cloud-routes=false"}
	}
	var err error
	if c.controllerManager, err = c.launch("kube-controller-manager", append([]string{
		"--kubeconfig=" + c.path(managerKubeconfig),
		"--leader-elect=false",
		"--secure-port=0",
		"--controllers=" + strings.Join(controllers, ","),
		"--use-service-account-credentials",
		"--root-ca-file=" + c.path(caCert),
		"--service-account-private-key-file=" + c.path(serviceAccountKey),
		"--cluster-signing-cert-file=" + c.path(caCert), "--cluster-signing-key-file=" + c.path(caKey),
		"--cluster-name=" + c.Name,
	}, append(network, options.ControllerManagerFlags...)...)...); err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	return c.controllerManager.WaitFor(ctx, func(ctx context.Context) error {
		_, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// StartScheduler starts kube-scheduler. Stop stops it.
func (c *ControlPlane) StartScheduler() error {
	err := c.writeUserKubeconfig("system:kube-scheduler", schedulerKubeconfig)
	if err == nil {
		c.scheduler, err = c.launch("kube-scheduler", "--kubeconfig="+c.path(schedulerKubeconfig), "--leader-elect=false", "--secure-port=0")
	}
	return err
}

// moreMemory has a program collect garbage seldom until it uses 2 GiB. With the default, that is a third of the
// processor time of an API server.
var moreMemory = []string{"GOGC=400", "GOMEMLIMIT=2GiB"}

func (c *ControlPlane) launch(program string, args ...string) (*process.Process, error) {
	c.log.Info("Starting", "program", program, "cluster", c.Name, "log", c.path(program+".log"))
	return process.Launch(c.dir, moreMemory, filepath.Join(c.binDir, program), args...)
}

// onFreePort calls start with a free port, and again with another port if the program found it in use.
func onFreePort(start func(port int) (*process.Process, error)) error {
	for attempt := 1; ; attempt++ {
		port, err := loopback.FreePort()
		if err != nil {
			return err
		}
		p, err := start(port)
		if err == nil || p == nil || attempt == attempts || !p.PortTaken() {
			return err
		}
	}
}

func healthy(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
