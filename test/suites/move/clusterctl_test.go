package move

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// labelKinds labels the CRDs of the Bare Metal Operator, as Metal3's documentation requires of users.
func labelKinds(ctx context.Context, c client.Client) {
	GinkgoHelper()
	var kinds apiextensionsv1.CustomResourceDefinitionList
	Expect(c.List(ctx, &kinds)).To(Succeed())
	for _, kind := range kinds.Items {
		if kind.Spec.Group != "metal3.io" {
			continue
		}
		before := kind.DeepCopy()
		metav1.SetMetaDataLabel(&kind.ObjectMeta, clusterctlv1.ClusterctlMoveLabel, "")
		if kind.Spec.Names.Kind == "BareMetalHost" {
			metav1.SetMetaDataLabel(&kind.ObjectMeta, clusterctlv1.ClusterctlMoveHierarchyLabel, "")
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
