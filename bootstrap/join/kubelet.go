package join

import (
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

const staticPodDirectory = "/etc/kubernetes/manifests"

// kubeletJoin returns the configuration of a host whose kubelet joins with TLS bootstrapping. It has only the settings
// for joining. Users set all others, such as container runtime, cluster DNS and reserved resources, with drop-ins in
// ignition.KubeletConfigDirectory.
func kubeletJoin(join *bootstrapv1.KubeletJoin, reg registration.Registration, cl Cluster) ignition.Config {
	env := ignition.KubeletArgsVariable + "=" + strings.Join(reg.KubeletArgs(), " ") + "\n" +
		ignition.KubeletCommandVariable + "=" + kubeletCommand(join.Path()) + "\n"

	config := ignition.New()
	config.Storage.Directories = append(config.Storage.Directories,
		newDirectory(ignition.KubeletConfigDirectory), newDirectory(staticPodDirectory))
	config.Storage.Files = append(config.Storage.Files,
		newFile(ignition.KubeletConfigPath, 0o644, []byte(kubeletConfiguration)),
		newFile(ignition.ClusterCAPath, 0o644, cl.CA),
		newFile(ignition.KubeletEnvPath, 0o600, []byte(env)))
	config.Systemd.Units = append(config.Systemd.Units,
		newEnabledUnit(ignition.KubeletUnit, kubeletUnit(join.Path())),
		dependenciesTarget(), newUnit(ignition.CheckpointsUnit, checkpointsUnit()))
	config.Systemd.Units = append(config.Systemd.Units, sentinelUnits()...)
	config = withVersions(config, cl.Server, "", join.Path(), ignition.BootstrapKubeconfigPath)
	return withCheck(config, ignition.KubeletArgsVariable, ignition.KubeletEnvPath)
}

// kubeletConfiguration is the configuration with which a kubelet joins, and accepts only requests that the API server
// authorizes. The cgroup driver is systemd, because every host with Ignition runs systemd. The kubelet uses it if its
// container runtime reports no driver.
const kubeletConfiguration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: false
  webhook:
    enabled: true
  x509:
    clientCAFile: ` + ignition.ClusterCAPath + `
authorization:
  mode: Webhook
cgroupDriver: systemd
rotateCertificates: true
staticPodPath: ` + staticPodDirectory + "\n"

// kubeletCommand returns the command of the kubelet without the flags that put its Node into its pool.
func kubeletCommand(kubeletPath string) string {
	return strings.Join([]string{
		kubeletPath,
		"--config=" + ignition.KubeletConfigPath,
		"--config-dir=" + ignition.KubeletConfigDirectory,
		"--bootstrap-kubeconfig=" + ignition.BootstrapKubeconfigPath,
		"--kubeconfig=" + ignition.KubeconfigPath,
		"--cert-dir=" + ignition.KubeletPKIDirectory,
	}, " ")
}

// kubeletUnit returns the unit of the kubelet. Like that of kubeadm, it takes other flags from KUBELET_EXTRA_ARGS.
// Those of the pool are last, and win.
func kubeletUnit(kubeletPath string) []*unit.UnitOption {
	command := kubeletCommand(kubeletPath) + " $KUBELET_EXTRA_ARGS $" + ignition.KubeletArgsVariable
	unitOptions := slices.Concat(newOnlineUnit("Kubelet (joins with TLS bootstrapping)"), requiresCheck(), wantsDependencies(), followsCheckpoints())
	return append(unitOptions,
		unit.NewUnitOption("Service", "EnvironmentFile", "-/etc/default/kubelet"),
		unit.NewUnitOption("Service", "EnvironmentFile", "-/etc/sysconfig/kubelet"),
		unit.NewUnitOption("Service", "EnvironmentFile", ignition.KubeletEnvPath),
		unit.NewUnitOption("Service", "ExecStart", command),
		unit.NewUnitOption("Service", "Restart", "always"),
		unit.NewUnitOption("Service", "RestartSec", "10"),
		wantedByMultiUser())
}
