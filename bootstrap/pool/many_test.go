package pool_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Render, of 1000 MachineConfigs", func() {
	pools := []poolv1.MachineConfigPool{newPool("worker")}
	var configs []poolv1.MachineConfig
	for i := range 998 {
		configs = append(configs, newConfig(fmt.Sprintf("50-%04d", i), "worker", fmt.Sprintf("/etc/a/%d", i), strings.Repeat("a", 300)))
	}
	with := func(first, last string) []poolv1.MachineConfig {
		all := slices.Clone(configs)
		for i, ignition := range []string{first, last} {
			config := newConfig(fmt.Sprintf("60-%d", i), "worker", "/etc/a", "a")
			config.Spec.Config = &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"},"storage":` + ignition + `}`)}
			all = append(all, config)
		}
		return all
	}
	// allocations counts those of a render, which don't depend on what other processes do.
	allocations := func(all []poolv1.MachineConfig) (count float64, err error) {
		count = testing.AllocsPerRun(1, func() { _, err = pool.Render("worker", pools, all) })
		return count, err
	}

	// A search among the MachineConfigs by further merges would allocate a multiple of a render.
	DescribeTable("costs no more if they fail together, and names the MachineConfigs",
		func(first, last, want string) {
			success, err := allocations(with(`{}`, `{}`))
			Expect(err).NotTo(HaveOccurred())
			failure, err := allocations(with(first, last))
			Expect(err).To(MatchError(HavePrefix(want)))
			AddReportEntry("allocations", fmt.Sprintf("success %.0f, failure %.0f", success, failure))
			Expect(failure).To(BeNumerically("<", 2*success))
		},
		Entry("as Ignition sees it", `{"links":[{"path":"/opt/b","target":"/opt/c"}]}`, `{"files":[{"path":"/opt/b/d"}]}`,
			`MachineConfig "60-1": spec.config.storage.files[0]: together with spec.config.storage.links[0] of MachineConfig "60-0"`),
		Entry("all below one link", `{"links":[{"path":"/etc/a","target":"/opt/c"}]}`, `{}`,
			`MachineConfig "50-0000": spec.config.storage.files[0]: together with spec.config.storage.links[0] of MachineConfig "60-0"`),
		Entry("as a kubelet flag that is split", `{"files":[{"path":"/opt/a.env","contents":{"source":"data:,A=--node-"}}]}`,
			`{"files":[{"path":"/opt/a.env","append":[{"source":"data:,labels=a=b"}]}]}`,
			`MachineConfig "60-1": spec.config.storage.files[0]: together with spec.config.storage.files[0] of MachineConfig "60-0"`),
	)
})
