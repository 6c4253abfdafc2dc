package move

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// labelKinds labels the CRDs of providers, as clusterctl init does, and the CRDs of the Bare Metal Operator, as
// Metal3's documentation requires of users.
func labelKinds(ctx context.Context, c client.Client) {
	GinkgoHelper()
	var kinds apiextensionsv1.CustomResourceDefinitionList
	Expect(c.List(ctx, &kinds)).To(Succeed())
	for _, kind := range kinds.Items {
		before := kind.DeepCopy()
		switch {
		case kind.Spec.Group == "metal3.io":
			metav1.SetMetaDataLabel(&kind.ObjectMeta, clusterctlv1.ClusterctlMoveLabel, "")
			if kind.Spec.Names.Kind == "BareMetalHost" {
				metav1.SetMetaDataLabel(&kind.ObjectMeta, clusterctlv1.ClusterctlMoveHierarchyLabel, "")
			}
		case !strings.HasSuffix(kind.Spec.Group, "cluster.x-k8s.io") && kind.Spec.Group != poolv1.GroupVersion.Group:
			continue
		}
		metav1.SetMetaDataLabel(&kind.ObjectMeta, clusterctlv1.ClusterctlLabel, "")
		Expect(c.Patch(ctx, &kind, client.MergeFrom(before))).To(Succeed())
	}
}

// stopIronic stops a site's Ironic before a move, as the guide of Cluster API's Metal3 provider requires: clusterctl
// unpauses the hosts that it deletes, and the Bare Metal Operator then cleans them.
func stopIronic(s *site.Site) { s.StopIronic() }

// move runs clusterctl move.
func move(ctx context.Context, options clusterctl.MoveOptions) {
	GinkgoHelper()
	Expect(tryMove(ctx, options)).To(Succeed())
}

// tryMove runs clusterctl move and returns its error.
func tryMove(ctx context.Context, options clusterctl.MoveOptions) error {
	GinkgoHelper()
	settings, err := config.New(ctx, filepath.Join(GinkgoT().TempDir(), "clusterctl.yaml"), config.InjectReader(config.NewMemoryReader()))
	Expect(err).NotTo(HaveOccurred())
	c, err := clusterctl.New(ctx, "", clusterctl.InjectConfig(settings))
	Expect(err).NotTo(HaveOccurred())
	return c.Move(ctx, options)
}

func newKubeconfig(s *site.Site) clusterctl.Kubeconfig {
	return clusterctl.Kubeconfig{Path: s.Management.Kubeconfig}
}
