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

// discoveryPath is the kubeconfig that kubeadm joins with. It can't be one of the files that kubeadm writes itself:
// its preflight checks refuse to go on when one of those, or the cluster's CA, is there already.
const discoveryPath = ignition.OwnDirectory + "/discovery.conf"

// kubeadmJoin configures a host that runs kubeadm join. The kubelet's unit and configuration are those of the image and
// of the cluster's kubelet-config.
func kubeadmJoin(join *bootstrapv1.KubeadmJoin, reg registration.Registration, cl Cluster, cred Credential) (ignition.Config, error) {
	discovery, err := joinKubeconfig(cl, cred)
	if err != nil {
		return ignition.Config{}, err
	}
	joinConfig, err := yaml.Marshal(joinConfiguration(join, reg))
	if err != nil {
		return ignition.Config{}, err
	}
	config := ignition.New()
	config.Storage.Directories = append(config.Storage.Directories, directory(ignition.KubeletConfigDirectory))
	config.Storage.Files = append(config.Storage.Files,
		file(ignition.KubeadmJoinPath, 0o600, joinConfig),
		file(discoveryPath, 0o600, discovery))
	config.Systemd.Units = append(config.Systemd.Units,
		// kubeadm starts the kubelet, but only a unit that is enabled outlives a reboot
		withDropin(enabledUnit(ignition.KubeletUnit, nil), checkedFirst()),
		enabledUnit("poolboot-join.service", joinUnit(join.Path())))
	config.Systemd.Units = append(config.Systemd.Units, joinedUnits()...)
	return withCheck(config, ignition.KubeadmArgsVariable, ignition.KubeadmFlagsPath)
}

// joinConfiguration is kubeadm's own part. kubeadm makes the kubelet's flags for name and taints by itself; labels and
// provider ID are handed through. Its kubelets read no drop-ins unless they are told to.
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
			Taints:                reg.Taints,
			KubeletExtraArgs:      extraArgs,
			IgnorePreflightErrors: ignoredPreflightErrors(join.IgnorePreflightErrors),
		},
		Discovery: kubeadmv1beta4.Discovery{File: &kubeadmv1beta4.FileDiscovery{KubeConfigPath: discoveryPath}},
	}
}

// triedBefore are the preflight checks that a host fails on which kubeadm join was run before and did not come to its
// end: the power went, or the kubelet or the approval of its certificate took longer than kubeadm waits. kubeadm writes
// the files and starts the kubelet anew.
var triedBefore = []string{
	preflightOfFile(ignition.BootstrapKubeconfigPath),
	preflightOfFile(ignition.KubeconfigPath),
	preflightOfFile(ignition.ClusterCAPath),
	"Port-10250", // the kubelet's
}

// preflightOfFile is kubeadm's name for the check that a file is not there yet.
func preflightOfFile(name string) string {
	return "FileAvailable-" + strings.ReplaceAll(name, "/", "-")
}

// ignoredPreflightErrors adds those of a second try to what a user ignores. kubeadm takes "all" only alone.
func ignoredPreflightErrors(byUser []string) []string {
	if slices.ContainsFunc(byUser, func(name string) bool { return strings.EqualFold(name, "all") }) {
		return byUser
	}
	return append(slices.Clone(byUser), triedBefore...)
}

// joinUnit runs kubeadm join, again and again until the kubelet has its certificate. After that it must not: kubeadm
// refuses to join as a Node that is Ready. kubeadm asks the kubelet for its version and finds it by PATH: beside
// kubeadm, if it is in no usual place.
func joinUnit(kubeadmPath string) []*unit.UnitOption {
	return append(append(onlineUnit("Join the cluster with kubeadm"), checkedFirst()...),
		unit.NewUnitOption("Unit", "ConditionPathExists", "!"+kubeletCertificate),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "RemainAfterExit", "yes"),
		unit.NewUnitOption("Service", "Environment", "PATH="+path.Dir(kubeadmPath)+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
		unit.NewUnitOption("Service", "Restart", "on-failure"),
		unit.NewUnitOption("Service", "RestartSec", "10"),
		unit.NewUnitOption("Service", "ExecStart", kubeadmPath+" join --config="+ignition.KubeadmJoinPath),
		atBoot())
}
