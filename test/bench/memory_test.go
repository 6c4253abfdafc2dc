package bench

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/config"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// BenchmarkMemory runs the real config server with a real API server and 50 rendered configs of 1 MiB, and boots the
// hosts of each. It reports the server's memory when it is ready and when the hosts have booted, and its peak memory.
func BenchmarkMemory(b *testing.B) {
	const many = 50
	ctx := context.Background()
	plane, err := controlplane.Start(ctx, controlplane.Options{Name: "memory"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			b.Error(err)
		}
	})
	if _, err := envtest.InstallCRDs(plane.Config, envtest.CRDInstallOptions{CRDs: config.CRDs()}); err != nil {
		b.Fatal(err)
	}
	admin, err := client.New(plane.Config, client.Options{Scheme: clusterapi.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	if err := createMachines(ctx, admin, many); err != nil {
		b.Fatal(err)
	}
	program, hosts := startConfigServer(b, plane.Kubeconfig)
	held := func(of func() (int, error)) float64 {
		bytes, err := of()
		if err != nil {
			b.Fatal(err)
		}
		return float64(bytes) / (1 << 20)
	}
	ready := held(program.Memory)
	for b.Loop() {
		for i := range 4 * many {
			if err := hosts.boot(hosts.Ours + configPath("infra-"+strconv.Itoa(i%many))); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(ready, "ready-MiB")
	b.ReportMetric(held(program.Memory), "booted-MiB")
	b.ReportMetric(held(program.PeakMemory), "peak-MiB")
}

// createMachines creates Machines that can boot, each in its own pool. Their names end with their number.
func createMachines(ctx context.Context, admin client.Client, many int) error {
	one, err := newMachine(load{configs: 200, filesEach: 5, bytes: 1 << 20})
	if err != nil {
		return err
	}
	for i := range many {
		id := strconv.Itoa(i)
		rendered := one.rendered.DeepCopy()
		rendered.Spec.KernelArguments = append(rendered.Spec.KernelArguments, "bench.pool="+id)
		if rendered.Name, err = pool.NameFor("infra", rendered.Spec); err != nil {
			return err
		}
		config := &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "infra-" + id},
			Spec:       bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}},
		}
		if err := errors.Join(admin.Create(ctx, rendered), admin.Create(ctx, config)); err != nil {
			return err
		}
		before := config.DeepCopy()
		config.Annotations = access.Config(client.ObjectKeyFromObject(config), config.UID).Annotations(benchToken)
		config.Annotations[bootstrapv1.PointerIDAnnotation] = benchPointer
		if err := admin.Patch(ctx, config, client.MergeFrom(before)); err != nil {
			return err
		}
		err := admin.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceDefault, Name: record.OverlayName(config.UID),
				Labels: map[string]string{bootstrapv1.OverlayLabel: string(config.UID)},
				Annotations: map[string]string{
					bootstrapv1.OverlayExpiresAnnotation:       one.overlay.Expires.UTC().Format(time.RFC3339),
					bootstrapv1.OverlayConfigurationAnnotation: rendered.Name,
				},
			},
			Data: map[string][]byte{bootstrapv1.OverlayKey: []byte(one.overlay.Packed)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// startConfigServer starts the built config server and waits until it is ready.
func startConfigServer(b *testing.B, kubeconfig string) (*process.Process, *served) {
	bin, err := process.BinDir()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	pair, err := authority().Server()
	if err != nil {
		b.Fatal(err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), pair.Cert, 0o600), os.WriteFile(filepath.Join(dir, "tls.key"), pair.Key, 0o600))
	if err != nil {
		b.Fatal(err)
	}
	var ports [2]int
	for i := range ports {
		if ports[i], err = loopback.FreePort(); err != nil {
			b.Fatal(err)
		}
	}
	hosts, health := loopback.Address(ports[0]), loopback.Address(ports[1])
	program, err := process.Launch(dir, nil, filepath.Join(bin, "config-server"), "--kubeconfig="+kubeconfig, "--overlay-namespace="+metav1.NamespaceDefault,
		"--external-url=https://"+hosts, "--tls-cert-dir="+dir, "--bind-address="+hosts, "--health-bind-address="+health, "--metrics-bind-address=0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := program.Stop(); err != nil {
			b.Error(err)
		}
	})
	err = program.WaitFor(context.Background(), func(context.Context) error {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return errors.Join(err, response.Body.Close())
	})
	if err != nil {
		b.Fatal(err)
	}
	return program, &served{announcement: announcement{Ours: "https://" + hosts, CA: authority().PEM()}}
}
