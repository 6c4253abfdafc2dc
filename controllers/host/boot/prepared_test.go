package boot

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// expectPrepared checks that everything a host needs exists once and is consistent.
func expectPrepared(ctx context.Context, w *world, nodeName string) {
	GinkgoHelper()
	config := w.config(ctx)
	status := config.Status

	n := w.node(ctx)
	Expect(n.Name).To(Equal(nodeName))
	Expect(n.Labels).To(And(
		HaveKeyWithValue(infraLabel, ""),
		HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
		HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-of-the-host"),
	))
	Expect(n.Annotations).To(And(
		HaveKeyWithValue(poolv1.NodeConfigAnnotation, namespace+"/"+machineName),
		HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-edge-infra-1"),
		HaveKeyWithValue(agentv1.DesiredConfigAnnotation, "rendered-edge-infra-1"),
	))
	Expect(n.Spec.ProviderID).To(Equal("metal3://" + namespace + "/" + hostName + "/" + machineName))
	Expect(n.Spec.Taints).To(ContainElements(
		corev1.Taint{Key: poolv1.NodeUnassignedTaint, Effect: corev1.TaintEffectNoSchedule},
		corev1.Taint{Key: clusterv1.NodeUninitializedTaint.Key, Effect: corev1.TaintEffectNoSchedule},
	))
	Expect(n.Status.Conditions).To(ContainElement(And(
		HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionFalse), HaveField("Reason", registration.WaitingForKubeletReason))))

	Expect(status.PoolRole).To(Equal("infra"))
	Expect(conditions.GetReason(config, bootstrapv1.NodeInPoolCondition)).To(Equal(bootstrapv1.WaitingForKubeletReason))
	Expect(status.Boot.ServedConfiguration.Name).To(Equal("rendered-edge-infra-1"))
	Expect(status.HostRef).To(Equal(bootstrapv1.HostReference{Name: hostName, Namespace: namespace, UID: "uid-of-the-host"}))
	Expect(status.NodeRef).To(Equal(bootstrapv1.NodeReference{Name: nodeName, UID: string(n.UID)}))
	Expect(conditions.IsTrue(config, bootstrapv1.BootPreparedCondition)).To(BeTrue())
	Expect(needOf(config)).To(Or(Equal(nothing), Equal(renewal), Equal(expiration)), "the request is answered")

	credentials := w.credentials(ctx)
	Expect(credentials).To(HaveLen(1), "one live credential")
	token := credentials[0]
	Expect(string(token.Data["token-id"])).To(Equal(status.Boot.CredentialID))
	Expect(status.Boot.CredentialExpirationTime.Time).To(BeTemporally("~", time.Now().Add(15*time.Minute), time.Minute))

	expectAssigned(ctx, w, nodeName)
	overlays := w.overlays(ctx)
	Expect(overlays).To(HaveLen(1))
	overlay := overlays[0]
	Expect(overlay.Name).To(Equal("overlay-uid-of-the-config"))
	Expect(overlay.Labels).To(HaveKeyWithValue(bootstrapv1.OverlayLabel, "uid-of-the-config"))
	Expect(overlay.Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayConfigurationAnnotation, "rendered-edge-infra-1"))
	Expect(overlay.Annotations).To(HaveKeyWithValue(bootstrapv1.OverlayExpiresAnnotation, string(token.Data["expiration"])))
	Expect(fileIn(unpacked(overlay), "/etc/kubernetes/bootstrap-kubelet.conf")).To(And(
		ContainSubstring(string(token.Data["token-id"])+"."+string(token.Data["token-secret"])),
		ContainSubstring("https://192.0.2.10:6443"),
	))
}

// expectAssigned checks that the host has an assignment, and its overlay has the agent, if an agent is offered for the
// host, and that it has neither otherwise.
func expectAssigned(ctx context.Context, w *world, nodeName string) {
	GinkgoHelper()
	secrets := w.assignments(ctx)
	overlay := unpacked(w.overlays(ctx)[0])
	if len(w.offered.Agent.SHA512) == 0 {
		Expect(secrets).To(BeEmpty())
		Expect(string(overlay)).NotTo(ContainSubstring(assignment.AgentUnit))
		return
	}
	Expect(secrets).To(HaveLen(1))
	Expect(secrets[0].Name).To(Equal("assignment-uid-of-the-config"))
	Expect(secrets[0].Labels).To(HaveKeyWithValue(bootstrapv1.AssignmentLabel, "uid-of-the-config"))
	Expect(string(secrets[0].Data[bootstrapv1.AssignmentClientCAKey])).To(Equal("the cluster's CA"))
	assigned, err := assignment.Read(secrets[0].Data[bootstrapv1.AssignmentKey])
	Expect(err).NotTo(HaveOccurred())
	Expect(assigned.Node).To(Equal(nodeName))
	Expect(assigned.Config.Name).To(Equal(w.config(ctx).Status.Boot.ServedConfiguration.Name))
	Expect(assigned.Config.SHA512).To(HaveLen(128))
	Expect(fileIn(overlay, assignment.SettingsPath)).To(Equal(fileIn(assigned.Machine, assignment.SettingsPath)))
	Expect(fileIn(overlay, ignition.KubeletEnvPath)).To(Equal(fileIn(assigned.Machine, ignition.KubeletEnvPath)))
	for _, token := range w.credentials(ctx) {
		Expect(string(secrets[0].Data[bootstrapv1.AssignmentKey])).NotTo(ContainSubstring(string(token.Data["token-secret"])))
		Expect(fileIn(overlay, ignition.BootstrapKubeconfigPath)).To(ContainSubstring(string(token.Data["token-secret"])))
	}
}

// unpacked returns the Ignition in an overlay Secret.
func unpacked(overlay corev1.Secret) []byte {
	GinkgoHelper()
	raw, err := ignition.PackedOverlay(overlay.Data[bootstrapv1.OverlayKey]).Unpack()
	Expect(err).NotTo(HaveOccurred())
	return raw
}

// fileIn returns the content of a file in an Ignition config.
func fileIn(raw []byte, path string) string {
	GinkgoHelper()
	config, err := ignition.Parse(raw)
	Expect(err).NotTo(HaveOccurred())
	for _, f := range config.Storage.Files {
		if f.Path == path {
			return decoded(f.Contents)
		}
	}
	Fail("no file " + path)
	return ""
}

// expectNotPrepared checks that the condition and an event report why, and that the host has no credential and no
// overlay.
func expectNotPrepared(ctx context.Context, w *world, reason string, message ...string) {
	GinkgoHelper()
	condition := conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
	Expect(condition).NotTo(BeNil())
	Expect(condition.Status).To(Equal(metav1.ConditionFalse))
	Expect(condition.Reason).To(Equal(reason), condition.Message)
	for _, part := range message {
		Expect(condition.Message).To(ContainSubstring(part))
	}
	Expect(w.credentials(ctx)).To(BeEmpty())
	Expect(w.overlays(ctx)).To(BeEmpty())
	Expect(w.newEvents()).To(ContainElement(HavePrefix("Warning " + reason + " ")))
}
