package updates

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A running host whose pool gets other disks", func() {
	It("refuses them, or keeps its own and gets everything else, and boots", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		pool := t.Pool("disks")
		pool.Spec.Updates.MinReadySeconds, pool.Spec.Updates.ReadyDeadlineSeconds = ptr.To[int32](2), 60
		pool.Spec.Updates.DisruptionPolicy.Files = []poolv1.PathDisruptionPolicy{{Path: "/etc/quiet", Actions: poolv1.DisruptionActions{{Type: poolv1.ActionNone}}}}
		document := func(quiet, disks string) []byte {
			return fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/quiet","contents":{"source":"data:,%s"}}]%s}`, quiet, disks)
		}
		const disks = `,"disks":[{"device":"/dev/sdz","wipeTable":true,"partitions":[{"label":"data"}]}],
			"filesystems":[{"device":"/dev/disk/by-partlabel/data","format":"xfs","path":"/srv","wipeFilesystem":true}]},
			"systemd":{"units":[{"name":"srv.mount","enabled":true,"contents":"[Mount]\nWhat=/dev/disk/by-partlabel/data\nWhere=/srv\nType=xfs\n[Install]\nRequiredBy=local-fs.target\n"}]}`
		change := t.IgnitionMachineConfig("51-disks", "disks", document("1", "}"))
		t.Create(ctx, pool, change)
		t.Deploy(ctx, tenant.Deployment{Name: "disks", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "disks" }})
		config := t.Config(ctx, "disks")
		expectJoined(ctx, t, config)
		host, updated := lab.Hardware.Host(config.Status.HostRef.Name), t.Condition(config, bootstrapv1.UpdatedCondition)
		configure := func(document []byte) {
			GinkgoHelper()
			before := change.DeepCopy()
			change.Spec.Config = &runtime.RawExtension{Raw: document}
			Expect(lab.ManagementClient.Patch(ctx, change, client.MergeFrom(before))).To(Succeed())
		}
		// outdated returns how many hosts are updated, how many of them have other disks, and what this one lacks.
		outdated := func(ctx context.Context) (string, error) {
			if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
				return "", err
			}
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return fmt.Sprint(ptr.Deref(pool.Status.UpdatedHostCount, 0), ptr.Deref(pool.Status.OutdatedDisksHostCount, 0), config.Status.Update.OutdatedDisks), err
		}
		boot := host.BootID()

		By("refusing them by default")
		configure(document("2", disks))
		Eventually(ctx, updated).Should(And(HavePrefix("False "+bootstrapv1.UpdateUnreconcilableReason), ContainSubstring("disk /dev/sdz: "),
			ContainSubstring("set spec.updates.diskPolicy to NewHostsOnly"), ContainSubstring("disk /dev/sdz comes from MachineConfig 51-disks")))
		Expect(host.ReadFile("/etc/quiet")).To(BeEquivalentTo("1"))

		By("letting running hosts keep theirs")
		before := pool.DeepCopy()
		pool.Spec.Updates.DiskPolicy = poolv1.DiskNewHostsOnly
		Expect(lab.ManagementClient.Patch(ctx, pool, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, outdated).WithTimeout(4 * time.Minute).Should(Equal("1 1 [disk /dev/sdz filesystem /dev/disk/by-partlabel/data unit srv.mount]"))
		Eventually(ctx, updated).Should(And(HavePrefix("True"), ContainSubstring("keeps these as installed (spec.updates.diskPolicy is NewHostsOnly): disk /dev/sdz")))
		Expect(host.ReadFile("/etc/quiet")).To(BeEquivalentTo("2"))
		Expect(host.ReadFile("/etc/systemd/system/srv.mount")).Error().To(HaveOccurred())
		Expect(host.BootID()).To(Equal(boot))
		Expect(t.Node(ctx, config).Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))

		By("booting it")
		Expect(host.PowerCut()).To(Succeed())
		Expect(host.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, func() string { return t.Node(ctx, config).Annotations[agentv1.BootAnnotation] }).ShouldNot(Equal(boot))
		Eventually(ctx, func() bool { return util.IsNodeReady(t.Node(ctx, config)) }).Should(BeTrue())

		By("returning to what it was installed with")
		configure(document("3", "}"))
		Eventually(ctx, host.ReadFile).WithArguments("/etc/quiet").WithTimeout(4 * time.Minute).Should(BeEquivalentTo("3"))
		Eventually(ctx, outdated).Should(Equal("1 0 []"))
	}, SpecTimeout(12*time.Minute))
})
