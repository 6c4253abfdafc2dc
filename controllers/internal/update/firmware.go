package update

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=metal3.io,resources=hostfirmwaresettings;hostfirmwarecomponents;hostupdatepolicies,verbs=get

// powerOffPatience is how long Metal3 can take to power a host off for its firmware. A host that is still on then
// reboots by itself.
const powerOffPatience = 5 * time.Minute

// findMetal3 finds the BareMetalHost of a host that is being updated, or whose update has just ended. It must be the
// one that is recorded. The annotation of the Node stays until the request is withdrawn, also if the record is lost.
func (r *Updates) findMetal3(ctx context.Context, h *host) error {
	isAsked := h.Node != nil && metav1.HasAnnotation(h.Node.ObjectMeta, agentv1.Metal3RebootsAnnotation)
	if h.Config.Status.Update.Stage == "" && h.Stage() == "" && !isAsked {
		return nil
	}
	found, err := barehost.ForConfig(ctx, r.Client, h.Config, h.Machine)
	if _, isNotReady := errors.AsType[*barehost.NotReadyError](err); isNotReady {
		return nil
	}
	if err == nil && found != nil && found.UID == h.Config.Status.HostRef.UID {
		h.bmh = found.Object
	}
	return err
}

// hasFirmwareToApply reports whether Metal3 applies firmware settings or updates if it reboots a host for the update
// that begins.
func (r *Updates) hasFirmwareToApply(ctx context.Context, h *host) (bool, error) {
	if h.bmh == nil || h.Report.Effect != update.EffectReboot {
		return false, nil
	}
	firmware, err := barehost.FirmwareOf(ctx, r.APIReader, h.bmh)
	if apierrors.IsForbidden(err) { // the update does not depend on it
		firmware.Why, err = err.Error(), nil
	}
	if firmware.Why != "" {
		r.reportNotApplied(h, firmware.Why)
	}
	return firmware.IsPending, err
}

func (r *Updates) reportNotApplied(h *host, why string) {
	r.Recorder.Eventf(h.Config, nil, corev1.EventTypeWarning, bootstrapv1.EventFirmwareNotApplied, action, "%s",
		rollout.Clean(fmt.Sprintf("The reboot for the update of Node %s does not apply everything that the HostUpdatePolicy %s has for a reboot: %s", h.Node.Name, klog.KObj(h.bmh), why), maxNote))
}

// awaitsMetal3 reports whether the host is drained and changed, and its agent waits until Metal3 reboots it.
func (h *host) awaitsMetal3() bool {
	revision := h.Desired()
	if h.Node == nil || revision == "" || h.MachineWork() != rollout.NoMachineWork || h.Report.State != agentv1.Rebooting || h.Report.Target != revision ||
		h.Report.Current == revision || h.isUndoing() {
		return false
	}
	for _, key := range []string{agentv1.DesiredAnnotation, agentv1.BegunAnnotation, agentv1.DrainedAnnotation, agentv1.Metal3RebootsAnnotation} {
		if h.Node.Annotations[key] != revision {
			return false
		}
	}
	return true
}

// rebootByMetal3 has Metal3 reboot a host that waits for it, once for each update: the annotation that requests it and
// the one that says for which update are one write. Metal3 removes the request when the host is off. If the host does
// not wait any more, or Metal3 has not powered it off in time, the request is withdrawn, and then the agent is told to
// reboot by itself. Requests of others stay.
//
// It returns when it must be called again, or 0.
func (r *Updates) rebootByMetal3(ctx context.Context, h *host, now time.Time) (again time.Duration, err error) {
	waits := h.awaitsMetal3()
	if h.bmh == nil {
		if waits { // Metal3 has given the host away
			err = r.endWait(ctx, h)
		}
		return 0, err
	}
	recorded, bmh := h.Config.Status.Update, h.bmh.DeepCopy()
	attempt, left := recorded.Slot+"/"+h.Desired(), powerOffPatience
	if recorded.Stage == bootstrapv1.UpdateRebooting && recorded.StageTime != nil {
		left -= now.Sub(recorded.StageTime.Time)
	}
	switch {
	case waits && left > 0 && bmh.Annotations[bootstrapv1.FirmwareRebootAnnotation] == attempt:
		return left, nil
	case waits && left > 0:
		metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, bootstrapv1.FirmwareRebootAnnotation, attempt)
		if !metav1.HasAnnotation(bmh.ObjectMeta, bmov1alpha1.RebootAnnotationPrefix) {
			metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, bmov1alpha1.RebootAnnotationPrefix, bootstrapv1.FirmwareRebootRequest)
		}
		return left, r.patchHost(ctx, h, bmh)
	case waits && (!bmh.Status.PoweredOn || barehost.IsServiced(bmh)): // Metal3 powers it on, or says what fails
		return 0, nil
	}
	if bmh.Annotations[bmov1alpha1.RebootAnnotationPrefix] == bootstrapv1.FirmwareRebootRequest {
		delete(bmh.Annotations, bmov1alpha1.RebootAnnotationPrefix)
		if err := r.patchHost(ctx, h, bmh); err != nil {
			return 0, err
		}
		if waits {
			r.reportNotApplied(h, fmt.Sprintf("Metal3 has not powered off BareMetalHost %s within %s, so the host reboots by itself", klog.KObj(bmh), powerOffPatience))
		}
	}
	if waits {
		err = r.endWait(ctx, h)
	}
	return 0, err
}

// patchHost writes the annotations of a BareMetalHost, locked to the version that was read.
func (r *Updates) patchHost(ctx context.Context, h *host, bmh *bmov1alpha1.BareMetalHost) error {
	if err := r.Client.Patch(ctx, bmh, status.Locked(h.bmh)); err != nil {
		return fmt.Errorf("annotations of BareMetalHost %s: %w", klog.KObj(bmh), err)
	}
	h.bmh = bmh
	return nil
}

// endWait tells the agent to reboot the host by itself.
func (r *Updates) endWait(ctx context.Context, h *host) error {
	w, err := workload.Client(ctx, r.ClusterCache, record.ClusterKey(h.Config))
	if err != nil {
		return err
	}
	node := h.Node.DeepCopy()
	delete(node.Annotations, agentv1.Metal3RebootsAnnotation)
	return drainer{workload: w, written: &r.written}.patch(ctx, h, node)
}

// isFirmwareApplied reports whether Metal3 has the firmware of a host that reboots for its update.
func (h *host) isFirmwareApplied() bool {
	return h.Stage() == bootstrapv1.UpdateRebooting && h.bmh != nil && barehost.IsServiced(h.bmh)
}

// describeFirmware returns the reason of the condition and its message about a host whose firmware Metal3 has, or "".
func (h *host) describeFirmware() (reason, message string) {
	switch {
	case !h.isFirmwareApplied():
		return "", ""
	case h.bmh.Status.ErrorType == "":
		return bootstrapv1.UpdateApplyingFirmwareReason, fmt.Sprintf("Metal3 applies firmware settings or updates to BareMetalHost %s before it boots", klog.KObj(h.bmh))
	}
	return bootstrapv1.FirmwareFailedReason, fmt.Sprintf("%s. Metal3 retries. To go on without the firmware, remove all settings and updates from the HostFirmwareSettings "+
		"and HostFirmwareComponents %s: then the host boots, and its update goes on", rollout.Clean(barehost.Trouble(h.bmh), agentv1.MaxReason), klog.KObj(h.bmh))
}
