package join

import (
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	kubeadmv1beta4 "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstreamv1beta4"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// discoveryPath is the kubeconfig for kubeadm join. It must differ from the files that kubeadm itself writes, because
// the preflight checks of kubeadm fail if one of these or the CA of the cluster exists.
const discoveryPath = ignition.OwnDirectory + "/discovery.conf"

// kubeadmJoin returns the configuration of a host that runs kubeadm join. The image provides the unit of the kubelet.
// The image and the ConfigMap kubelet-config of the cluster provide its configuration.
func kubeadmJoin(join *bootstrapv1.KubeadmJoin, reg registration.Registration, cl Cluster) (ignition.Config, error) {
	joinConfig, err := yaml.Marshal(joinConfiguration(join, reg))
	if err != nil {
		return ignition.Config{}, err
	}
	config := ignition.New()
	config.Storage.Directories = append(config.Storage.Directories, newDirectory(ignition.KubeletConfigDirectory))
	config.Storage.Files = append(config.Storage.Files, newFile(ignition.KubeadmJoinPath, 0o600, joinConfig))
	config.Systemd.Units = append(config.Systemd.Units,
		// kubeadm starts the kubelet, but after a reboot only an enabled unit starts
		withDropin(newEnabledUnit(ignition.KubeletUnit, nil), slices.Concat(requiresCheck(), wantsDependencies(), followsCheckpoints())),
		dependenciesTarget(), newUnit(ignition.CheckpointsUnit, checkpointsUnit()),
		newEnabledUnit("poolboot-join.service", joinUnit(join.Path())))
	config.Systemd.Units = append(config.Systemd.Units, sentinelUnits()...)
	config = withVersions(config, cl.Server, path.Dir(join.Path()), "kubelet", discoveryPath)
	return withCheck(config, ignition.KubeadmArgsVariable, ignition.KubeadmFlagsPath), nil
}

// joinConfiguration returns the JoinConfiguration of kubeadm. kubeadm itself sets the kubelet flags for the name and
// the taints. The flags for labels and provider ID are passed through. So is --config-dir, without which a kubelet
// reads no drop-ins.
func joinConfiguration(join *bootstrapv1.KubeadmJoin, reg registration.Registration) *kubeadmv1beta4.JoinConfiguration {
	extraArgs := []kubeadmv1beta4.Arg{{Name: "config-dir", Value: ignition.KubeletConfigDirectory}}
	for _, arg := range reg.KubeletArgs() {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if name != "hostname-override" && name != "register-with-taints" {
			extraArgs = append(extraArgs, kubeadmv1beta4.Arg{Name: name, Value: value})
		}
	}
	return &kubeadmv1beta4.JoinConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeadmv1beta4.GroupVersion.String(), Kind: "JoinConfiguration"},
		NodeRegistration: kubeadmv1beta4.NodeRegistrationOptions{
			Name:                  reg.Name,
			CRISocket:             join.CRISocket,
			Taints:                reg.KubeletTaints(),
			KubeletExtraArgs:      extraArgs,
			IgnorePreflightErrors: ignoredPreflightErrors(join.IgnorePreflightErrors),
		},
		Discovery: kubeadmv1beta4.Discovery{File: &kubeadmv1beta4.FileDiscovery{KubeConfigPath: discoveryPath}},
	}
}

// retryPreflightErrors are the preflight checks that fail on a host where an earlier kubeadm join did not complete: the
// power failed, or the kubelet or the approval of its certificate took longer than kubeadm waits. kubeadm writes the
// files again and restarts the kubelet.
var retryPreflightErrors = []string{
	filePreflightError(ignition.BootstrapKubeconfigPath),
	filePreflightError(ignition.KubeconfigPath),
	filePreflightError(ignition.ClusterCAPath),
	"Port-10250", // the port of the kubelet
}

// filePreflightError returns the name of the kubeadm check that a file does not exist.
func filePreflightError(name string) string {
	return "FileAvailable-" + strings.ReplaceAll(name, "/", "-")
}

// ignoredPreflightErrors adds retryPreflightErrors to the errors that the user ignores. kubeadm does not accept "all"
// together with others.
func ignoredPreflightErrors(byUser []string) []string {
	if slices.ContainsFunc(byUser, func(name string) bool { return strings.EqualFold(name, "all") }) {
		return byUser
	}
	return append(slices.Clone(byUser), retryPreflightErrors...)
}

// joinUnit returns the unit that runs kubeadm join, and repeats it until the kubelet has its certificate, and a
// kubeconfig that was not lost with the power. After that it must not run, because kubeadm refuses to join as a Node
// that is Ready. kubeadm runs the kubelet to read its version.
// PATH starts with the directory of kubeadm, because the kubelet can be in the same unusual directory.
func joinUnit(kubeadmPath string) []*unit.UnitOption {
	return append(append(newOnlineUnit("Join the cluster with kubeadm"), requiresCheck()...),
		unit.NewUnitOption("Unit", "After", ignition.CheckpointsUnit),
		unit.NewUnitOption("Unit", "ConditionPathExists", "|!"+kubeletCertificate),
		unit.NewUnitOption("Unit", "ConditionFileNotEmpty", "|!"+ignition.KubeconfigPath),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "Environment", "PATH="+path.Dir(kubeadmPath)+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
		unit.NewUnitOption("Service", "Restart", "on-failure"),
		unit.NewUnitOption("Service", "RestartSec", "10"),
		unit.NewUnitOption("Service", "ExecStart", kubeadmPath+" join --config="+ignition.KubeadmJoinPath),
		wantedByMultiUser())
}
