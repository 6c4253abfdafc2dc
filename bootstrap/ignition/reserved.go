package ignition

// Places on a host that are Poolboot's own. The machine's overlay writes them; Guard keeps them free of anything else.
const (
	// OwnDirectory holds what Poolboot leaves on a host for others to read.
	OwnDirectory = "/etc/poolboot"
	// KubeletEnvPath is the environment file with the kubelet's flags that are the machine's own.
	KubeletEnvPath = OwnDirectory + "/kubelet.env"
	// MachineConfigPath tells the operating system's agent what of the rendered config Ignition can't do.
	MachineConfigPath = OwnDirectory + "/machineconfig.json"

	// BootstrapKubeconfigPath is the kubeconfig with the join credential.
	BootstrapKubeconfigPath = "/etc/kubernetes/bootstrap-kubelet.conf"
	// KubeconfigPath is the kubeconfig that the kubelet writes once it has its certificate.
	KubeconfigPath = "/etc/kubernetes/kubelet.conf"
	// ClusterCAPath is the certificate authority of the cluster.
	ClusterCAPath = "/etc/kubernetes/pki/ca.crt"
	// KubeletConfigPath is the kubelet's configuration.
	KubeletConfigPath = "/etc/kubernetes/kubelet.yaml"
	// KubeletConfigDirectory is where users put drop-ins of the kubelet's configuration.
	KubeletConfigDirectory = "/etc/kubernetes/kubelet.conf.d"
	// KubeadmJoinPath is kubeadm's JoinConfiguration.
	KubeadmJoinPath = "/etc/kubernetes/poolboot-join.yaml"
	// HostnamePath is the host's name, which must stay that of its Node.
	HostnamePath = "/etc/hostname"
	// SentinelPath is the file by which Cluster API knows that a host has joined.
	SentinelPath = "/run/cluster-api/bootstrap-success.complete"

	// KubeletUnit is the kubelet's systemd unit.
	KubeletUnit = "kubelet.service"
	// OwnUnitPrefix starts the names of Poolboot's own systemd units.
	OwnUnitPrefix = "poolboot-"
	// KubeletArgsVariable is the variable in KubeletEnvPath that the kubelet's unit takes its flags from.
	KubeletArgsVariable = "POOLBOOT_KUBELET_ARGS"
)
