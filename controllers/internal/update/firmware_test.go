package update

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

// bmh returns the BareMetalHost of a host.
func (w *world) bmh(ctx context.Context, i int) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	bmh := &bmov1alpha1.BareMetalHost{}
	Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: hostName(i)}, bmh)).To(Succeed())
	return bmh
}

// changeBMH changes a BareMetalHost as Metal3 or a user does.
func (w *world) changeBMH(ctx context.Context, i int, change func(*bmov1alpha1.BareMetalHost)) {
	GinkgoHelper()
	bmh := w.bmh(ctx, i)
	change(bmh)
	Expect(w.management.Update(ctx, bmh)).To(Succeed())
}

// addMetal3 adds the objects of Metal3 for all hosts: each is a BareMetalHost of a Metal3Machine.
func (w *world) addMetal3(ctx context.Context) {
	GinkgoHelper()
	Expect(w.management.Create(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: "metal3machines.infrastructure.cluster.x-k8s.io", Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
	}})).To(Succeed())
	for i := range w.size(ctx) {
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: hostName(i), UID: "bmh-uid"}}
		bmh.Spec.Online, bmh.Status.PoweredOn, bmh.Status.OperationalStatus = true, true, bmov1alpha1.OperationalStatusOK
		bmh.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		bmh.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3Machine", Namespace: clusterKey.Namespace, Name: hostName(i)}
		metal3Machine := &unstructured.Unstructured{}
		metal3Machine.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
		metal3Machine.SetKind("Metal3Machine")
		metal3Machine.SetNamespace(clusterKey.Namespace)
		metal3Machine.SetName(hostName(i))
		metal3Machine.SetAnnotations(map[string]string{barehost.Annotation: clusterKey.Namespace + "/" + hostName(i)})
		machine, config := w.machine(ctx, i), w.config(ctx, i)
		machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: hostName(i)}
		config.Status.HostRef = bootstrapv1.HostReference{Name: hostName(i), Namespace: clusterKey.Namespace, UID: "bmh-uid"}
		Expect(w.management.Create(ctx, bmh)).To(Succeed())
		Expect(w.management.Create(ctx, metal3Machine)).To(Succeed())
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
	}
}

// newFirmware returns the settings of a host, which Metal3 has compared with it.
func newFirmware(i int) (*bmov1alpha1.HostUpdatePolicy, *bmov1alpha1.HostFirmwareSettings) {
	meta := metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: hostName(i), Generation: 2}
	settings := &bmov1alpha1.HostFirmwareSettings{ObjectMeta: meta}
	settings.Spec.Settings = bmov1alpha1.DesiredSettingsMap{"LogicalProc": intstr.FromString("Disabled")}
	settings.Status.Settings = bmov1alpha1.SettingsMap{"LogicalProc": "Enabled"}
	settings.Status.Conditions = []metav1.Condition{
		{Type: "ChangeDetected", Status: metav1.ConditionTrue, ObservedGeneration: 2, Reason: "Success"},
		{Type: "Valid", Status: metav1.ConditionTrue, ObservedGeneration: 2, Reason: "Success"},
	}
	return &bmov1alpha1.HostUpdatePolicy{ObjectMeta: meta, Spec: bmov1alpha1.HostUpdatePolicySpec{FirmwareSettings: bmov1alpha1.HostUpdatePolicyOnReboot}}, settings
}

var _ = Describe("The firmware of a host whose update reboots it", func() {
	const reboot, forUpdate = bmov1alpha1.RebootAnnotationPrefix, bootstrapv1.FirmwareRebootAnnotation
	var (
		requested   = HaveField("Annotations", HaveKeyWithValue(reboot, bootstrapv1.FirmwareRebootRequest))
		byMetal3    = HaveField("Annotations", HaveKeyWithValue(agentv1.Metal3RebootsAnnotation, revisionOf(0, "rendered-worker-2")))
		isDrained   = HaveField("Annotations", HaveKeyWithValue(agentv1.DrainedAnnotation, revisionOf(0, "rendered-worker-2")))
		notByMetal3 = HaveField("Annotations", Not(HaveKey(agentv1.Metal3RebootsAnnotation)))
		policy      *bmov1alpha1.HostUpdatePolicy
		settings    *bmov1alpha1.HostFirmwareSettings
		w           *world
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(2)
		w.addMetal3(ctx)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		policy, settings = newFirmware(0)
	})
	// drain has the first host drained for an update with an effect.
	drain := func(ctx context.Context, effect string, objects ...client.Object) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(w.management.Create(ctx, object)).To(Succeed())
		}
		revision := revisionOf(0, "rendered-worker-2")
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.EffectAnnotation] = revision + " " + effect })
		w.reports(ctx, 0, agentv1.Draining, revision, "")
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(isDrained)
	}
	report := func(ctx context.Context, state agentv1.State, reason string) {
		GinkgoHelper()
		w.reports(ctx, 0, state, revisionOf(0, "rendered-worker-2"), reason)
		w.settle(ctx)
	}
	// takeRequest has Metal3 see that the host is off.
	takeRequest := func(ctx context.Context) {
		GinkgoHelper()
		w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) {
			delete(bmh.Annotations, reboot)
			bmh.Status.PoweredOn = false
		})
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
	}

	It("is applied by the same reboot: Metal3 gets one request, after the drain and the change, and the pause of health checks lasts until it is done", func(ctx SpecContext) {
		drain(ctx, "Reboot", policy, settings)
		Expect(w.node(ctx, 0)).To(byMetal3)
		report(ctx, agentv1.Applying, "")
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0)).To(requested)
		Expect(w.bmh(ctx, 1)).NotTo(requested)
		takeRequest(ctx)
		w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) {
			bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusServicing
		})
		w.settle(ctx)
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateApplyingFirmwareReason), HaveField("Message", ContainSubstring("BareMetalHost edge/host-0"))))
		w.passed += 3 * time.Hour
		w.settle(ctx)
		Expect(w.machine(ctx, 0).Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		Expect(w.updated(ctx, 0).Message).NotTo(ContainSubstring("longer than"))
		Expect(w.bmh(ctx, 0)).NotTo(requested)

		By("booting then")
		w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) {
			bmh.Status.OperationalStatus, bmh.Status.PoweredOn = bmov1alpha1.OperationalStatusOK, true
		})
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateRebootingReason))
		Expect(w.machine(ctx, 0).Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		report(ctx, agentv1.Verifying, "")
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(notByMetal3)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.eventsOf(bootstrapv1.EventFirmwareNotApplied)).To(BeEmpty())
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("fails: the condition has what Metal3 says and what to do, and the host keeps its place until that is corrected", func(ctx SpecContext) {
		drain(ctx, "Reboot", policy, settings)
		report(ctx, agentv1.Rebooting, "")
		takeRequest(ctx)
		for range 3 { // Metal3 retries
			w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) {
				bmh.Status.OperationalStatus, bmh.Status.ErrorType, bmh.Status.ErrorMessage = bmov1alpha1.OperationalStatusError, bmov1alpha1.ServicingError, "Timeout reached\nin apply_configuration"
			})
			w.passed += time.Hour
			w.settle(ctx)
			Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.FirmwareFailedReason),
				HaveField("Message", And(ContainSubstring("servicing error: Timeout reached in apply_configuration"), ContainSubstring("remove all settings and updates from the HostFirmwareSettings and HostFirmwareComponents edge/host-0")))))
			w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) {
				bmh.Status.OperationalStatus, bmh.Status.ErrorType, bmh.Status.ErrorMessage = bmov1alpha1.OperationalStatusServicing, "", ""
			})
			w.settle(ctx)
		}
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 1}))
	})

	It("waits no longer than five minutes for Metal3 to power the host off: the request is withdrawn before the agent reboots it", func(ctx SpecContext) {
		drain(ctx, "Reboot", policy, settings)
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0)).To(requested)
		w.passed += powerOffPatience - time.Minute
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(byMetal3)
		w.passed += time.Minute + time.Second
		w.settle(ctx)
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		Expect(w.node(ctx, 0)).To(notByMetal3)
		Expect(w.eventsOf(bootstrapv1.EventFirmwareNotApplied)).To(ConsistOf(ContainSubstring("has not powered off BareMetalHost edge/host-0")))
		w.settle(ctx)
		Expect(w.bmh(ctx, 0)).NotTo(requested)
	})

	DescribeTable("withdraws the request of a host that does not wait any more, and leaves those of others: ", func(ctx SpecContext, end func(SpecContext)) {
		drain(ctx, "Reboot", policy, settings)
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0)).To(requested)
		w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) { bmh.Annotations[reboot+"/remediation"] = "" })
		end(ctx)
		w.settle(ctx)
		Expect(w.bmh(ctx, 0)).To(And(Not(requested), HaveField("Annotations", HaveKey(reboot+"/remediation"))))
	},
		Entry("it was reset by hand", func(ctx SpecContext) { w.reports(ctx, 0, agentv1.Verifying, revisionOf(0, "rendered-worker-2"), "") }),
		Entry("its update is complete", func(ctx SpecContext) { w.complete(ctx, 0) }),
		Entry("it undoes its update", func(ctx SpecContext) {
			w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "it failed")
			w.changeNode(ctx, 0, func(node *corev1.Node) {
				node.Annotations[agentv1.UndoingAnnotation] = revisionOf(0, "rendered-worker-2")
			})
		}),
		Entry("its Node was deleted", func(ctx SpecContext) { Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed()) }),
		Entry("its Machine is deleted", func(ctx SpecContext) {
			machine := w.machine(ctx, 0)
			machine.Finalizers = []string{clusterv1.MachineFinalizer}
			Expect(w.management.Update(ctx, machine)).To(Succeed())
			Expect(w.management.Delete(ctx, machine)).To(Succeed())
		}),
	)

	DescribeTable("withdraws the request before Pods can come back, so that Metal3 never powers a host off that is in use: ", func(ctx SpecContext, end func(SpecContext)) {
		drain(ctx, "Reboot", policy, settings)
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0)).To(requested)
		isInUse := false
		w.reconciler = w.newManager(func(ctx context.Context, object client.Object, write func() error) error {
			err := w.Write(ctx, object, write)
			isInUse = isInUse || !w.node(ctx, 0).Spec.Unschedulable && w.bmh(ctx, 0).Annotations[reboot] != ""
			return err
		})
		end(ctx)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(isInUse).To(BeFalse())
	},
		Entry("its update is complete", func(ctx SpecContext) { w.complete(ctx, 0) }),
		Entry("its update failed", func(ctx SpecContext) {
			w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "it failed")
		}),
	)

	It("withdraws the request of a host whose update is complete also if that fails at first", func(ctx SpecContext) {
		drain(ctx, "Reboot", policy, settings)
		report(ctx, agentv1.Rebooting, "")
		failures := 3
		w.reconciler = w.newManager(func(ctx context.Context, object client.Object, write func() error) error {
			if _, isHost := object.(*bmov1alpha1.BareMetalHost); isHost && failures > 0 {
				failures--
				return apierrors.NewInternalError(errors.New("a webhook does not answer"))
			}
			return w.Write(ctx, object, write)
		})
		w.complete(ctx, 0)
		for range 4 {
			_, _ = w.reconcileHost(ctx, 0)
		}
		Expect(failures).To(BeZero())
		w.settle(ctx)
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
	})

	It("is applied by the reboot that someone else requested, whose request stays", func(ctx SpecContext) {
		drain(ctx, "Reboot", policy, settings)
		w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) { bmh.Annotations = map[string]string{reboot: ""} })
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0).Annotations).To(And(HaveKeyWithValue(reboot, ""), HaveKey(forUpdate)))
		takeRequest(ctx)
		Expect(w.bmh(ctx, 0).Annotations).NotTo(HaveKey(reboot))
	})

	It("is not touched through a BareMetalHost that is not the recorded one", func(ctx SpecContext) {
		drain(ctx, "Reboot", policy, settings)
		w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.ConsumerRef.Name = "another" })
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		Expect(w.node(ctx, 0)).To(notByMetal3, "so the agent reboots the host")
	})

	DescribeTable("is left to a later reboot, and the agent reboots the host: ", func(ctx SpecContext, effect string, change func(), event string) {
		change()
		drain(ctx, effect, policy, settings)
		Expect(w.node(ctx, 0)).To(notByMetal3)
		report(ctx, agentv1.Rebooting, "")
		Expect(w.bmh(ctx, 0)).NotTo(requested)
		if event == "" {
			Expect(w.eventsOf(bootstrapv1.EventFirmwareNotApplied)).To(BeEmpty())
			return
		}
		Expect(w.eventsOf(bootstrapv1.EventFirmwareNotApplied)).To(ConsistOf(And(HavePrefix("Warning"), ContainSubstring(event))))
	},
		Entry("the update does not reboot", "Restart", func() {}, ""),
		Entry("the policy is onPreparing", "Reboot", func() { policy.Spec.FirmwareSettings = bmov1alpha1.HostUpdatePolicyOnPreparing }, ""),
		Entry("nothing has changed", "Reboot", func() { settings.Status.Conditions[0].Status = metav1.ConditionFalse }, ""),
		Entry("the settings are not valid", "Reboot", func() {
			settings.Status.Conditions[1].Status, settings.Status.Conditions[1].Message = metav1.ConditionFalse, "Invalid BIOS setting"
		}, "HostFirmwareSettings edge/host-0 is not valid: Invalid BIOS setting"),
		Entry("Metal3 has not seen the last change, and would not power the host on", "Reboot", func() { settings.Generation = 3 },
			"Metal3 has not compared HostFirmwareSettings edge/host-0 with the host since it was changed"),
		Entry("Metal3 may not power the host off", "Reboot", func() {
			w.changeBMH(context.Background(), 0, func(bmh *bmov1alpha1.BareMetalHost) { bmh.Spec.DisablePowerOff = true })
		}, "spec.disablePowerOff"),
		Entry("the BMC does not answer", "Reboot", func() {
			w.changeBMH(context.Background(), 0, func(bmh *bmov1alpha1.BareMetalHost) {
				bmh.Status.OperationalStatus, bmh.Status.ErrorType, bmh.Status.ErrorMessage = bmov1alpha1.OperationalStatusError, bmov1alpha1.PowerManagementError, "no answer"
			})
		}, "has a power management error: no answer"),
		Entry("the Machine is excluded from drains", "Reboot", func() {
			machine := w.machine(context.Background(), 0)
			metav1.SetMetaDataAnnotation(&machine.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
			Expect(w.management.Update(context.Background(), machine)).To(Succeed())
		}, ""),
	)

	for n := 1; n <= 6; n++ {
		for _, late := range []bool{false, true} {
			It(fmt.Sprintf("is requested once if the manager crashes: write %d, which takes effect: %t", n, late), func(ctx SpecContext) {
				for _, object := range []client.Object{policy, settings} {
					Expect(w.management.Create(ctx, object)).To(Succeed())
				}
				w.CrashAt, w.Late = w.Writes+n, late
				drain(ctx, "Reboot")
				report(ctx, agentv1.Rebooting, "")
				Expect(w.bmh(ctx, 0)).To(requested)
				takeRequest(ctx)
				w.changeBMH(ctx, 0, func(bmh *bmov1alpha1.BareMetalHost) { bmh.Status.PoweredOn = true })
				w.settle(ctx)
				Expect(w.bmh(ctx, 0)).NotTo(requested)
				Expect(w.node(ctx, 0)).To(byMetal3)
			})
		}
	}
})
