package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var _ = Describe("kubectl get", func() {
	DescribeTable("shows in its columns, without -o wide,", func(ctx SpecContext, kind, resource, status string, shown map[string]any) {
		object := newObject(kind, "metadata: {name: columns}")
		Expect(k8sClient.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8sClient.Delete(ctx, object)).To(Succeed()) })
		fields := map[string]any{}
		Expect(yaml.Unmarshal([]byte(status), &fields)).To(Succeed())
		object.Object["status"] = fields
		Expect(k8sClient.Status().Update(ctx, object)).To(Succeed())

		client, err := rest.HTTPClientFor(controlPlane.Config)
		Expect(err).NotTo(HaveOccurred())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/apis/%s/namespaces/default/%s/columns", controlPlane.Config.Host, object.GetAPIVersion(), resource), nil)
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		answer, err := client.Do(request)
		Expect(err).NotTo(HaveOccurred())
		defer answer.Body.Close()
		table := metav1.Table{}
		Expect(json.NewDecoder(answer.Body).Decode(&table)).To(Succeed())
		cells := map[string]any{}
		for i, column := range table.ColumnDefinitions {
			if column.Priority == 0 {
				cells[column.Name] = table.Rows[0].Cells[i]
			}
		}
		shown["Name"] = "columns"
		delete(cells, "Age") // where it fits
		Expect(cells).To(Equal(shown))
	},
		Entry("what is wrong in a pool", "MachineConfigPool", "machineconfigpools",
			`{hostCount: 3, readyHostCount: 1, updatedHostCount: 2, degradedHostCount: 1, conditions: [{type: Ready, status: "False", reason: HostsDegraded, message: a, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
			map[string]any{"Ready": "False", "Reason": "HostsDegraded", "Hosts": 3.0, "Updated": 2.0, "Degraded": 1.0}),
		Entry("what is wrong with a running host", "PoolbootConfig", "poolbootconfigs",
			`{poolRole: infra, nodeRef: {name: infra-1, uid: 1b671a64-40d5-491e-99b0-da01ff1f3341}, conditions: [{type: Ready, status: "True", reason: Ready, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"},
			{type: Updated, status: "False", reason: UnitsFailing, message: a, lastTransitionTime: "2026-01-01T00:00:00Z"}]}`,
			map[string]any{"Pool": "infra", "Ready": "True", "Node": "infra-1", "State": "UnitsFailing"}),
		Entry("which pools render a MachineConfig", "MachineConfig", "machineconfigs", `{pools: [infra, worker]}`,
			map[string]any{"Pools": `["infra","worker"]`, "Ready": nil}),
	)
})
