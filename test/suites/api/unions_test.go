package api

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

var _ = Describe("A union", func() {
	const (
		byServer = `{"type":"Server","server":{"tokenBinding":"HostAddresses"}}`
		inline   = `{"type":"Inline"}`
		absent   = ""
	)
	config := func(name, source string) string {
		if source != absent {
			source = fmt.Sprintf("configSource: %s, ", source)
		}
		return fmt.Sprintf(`
apiVersion: bootstrap.cluster.x-k8s.io/v1alpha1
kind: PoolbootConfig
metadata: {name: %s, namespace: default}
spec: {%sjoin: {type: Kubelet}}
`, name, source)
	}
	serverSideApply := func(ctx SpecContext, name, source string) error {
		return k8sClient.Apply(ctx, client.ApplyConfigurationFromUnstructured(parseObject(config(name, source))), client.FieldOwner("a-user"))
	}
	clientSideApply := func(ctx SpecContext, name, source string) error {
		bin, err := process.BinDir()
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(file, []byte(config(name, source)), 0o600)).To(Succeed())
		output, err := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), "--kubeconfig", controlPlane.Kubeconfig, "apply", "-f", file).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	// patch returns a function that creates the object, or patches its configSource if it exists.
	patch := func(kind types.PatchType, patchOf func(source string) string) func(SpecContext, string, string) error {
		return func(ctx SpecContext, name, source string) error {
			object := parseObject(config(name, source))
			if err := k8sClient.Create(ctx, object.DeepCopy()); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return k8sClient.Patch(ctx, object, client.RawPatch(kind, []byte(patchOf(source))))
		}
	}

	DescribeTable("switches to another type and back, and is stored as written",
		func(ctx SpecContext, name string, write func(ctx SpecContext, name, source string) error) {
			for _, source := range []string{absent, inline, byServer, inline, byServer, `{"type":"Server"}`, inline} {
				Expect(write(ctx, name, source)).To(Succeed(), source)
				written, stored := parseObject(config(name, source)), parseObject(config(name, source))
				Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(stored), stored)).To(Succeed())
				Expect(stored.Object["spec"]).To(Equal(written.Object["spec"]))
			}
		},
		Entry("by server-side apply", "server-side", serverSideApply),
		Entry("by client-side apply", "client-side", clientSideApply),
		Entry("by a JSON patch", "json-patch", patch(types.JSONPatchType, func(source string) string {
			return fmt.Sprintf(`[{"op":"add","path":"/spec/configSource","value":%s}]`, source)
		})),
		Entry("by a merge patch", "merge-patch", patch(types.MergePatchType, func(source string) string {
			if source != byServer {
				source = strings.Replace(source, "}", `,"server":null}`, 1)
			}
			return fmt.Sprintf(`{"spec":{"configSource":%s}}`, source)
		})),
	)

	It("switches by a merge patch of only the type if the type has no settings", func(ctx SpecContext) {
		object := parseObject(config("type-alone", `{"type":"Server"}`))
		Expect(k8sClient.Create(ctx, object)).To(Succeed())
		for _, kind := range []string{"Inline", "Server"} {
			Expect(k8sClient.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"configSource":{"type":%q}}}`, kind)))).To(Succeed())
			Expect(object.Object["spec"]).To(HaveKeyWithValue("configSource", Equal(map[string]any{"type": kind})))
		}
	})
})
