package manager_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
)

// filling is a manager whose controller has already asked for ConfigMaps when somebody asks for the cache.
type filling struct{ ctrl.Manager }

func (f filling) GetCache() cache.Cache {
	_, err := f.Manager.GetCache().GetInformer(context.Background(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		panic(err)
	}
	return f.Manager.GetCache()
}

func TestAManagerWhoseCachesAreNotFilledInTimeIsAnError(t *testing.T) {
	g := NewWithT(t)
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme: scheme.Scheme, Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{CacheSyncTimeout: 100 * time.Millisecond},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))).To(Succeed())

	started := make(chan error, 1)
	go func() {
		_, err := manager.Start(t.Context(), filling{mgr})
		started <- err
	}()
	g.Eventually(started, "20s").Should(Receive(MatchError(ContainSubstring("the manager stopped while"))))
}
