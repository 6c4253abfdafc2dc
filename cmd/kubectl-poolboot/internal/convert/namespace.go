package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// keepsNamespace matches the line of a unit that keeps a mount namespace, as units for telco hosts do.
var keepsNamespace = regexp.MustCompile(`^\s*ExecStart\s*=.*\bunshare\s.*--mount=`)

// sharesNetworkNamespaces makes the directory of network namespaces a mount that all mount namespaces share. Otherwise,
// ip(8) makes it one when it creates the first network namespace on the host, and this mount hides those of running
// Pods from the kubelet and the container runtime in the other mount namespace.
const sharesNetworkNamespaces = `ExecStartPre=/bin/sh -c "mkdir -p /run/netns; mountpoint -q /run/netns || mount --bind /run/netns /run/netns; mount --make-shared /run/netns"`

// shareNetworkNamespaces adds this to units that keep a mount namespace.
func shareNetworkNamespaces(config *poolv1.MachineConfig, remark func(string, ...any)) {
	editIgnition(config, func(document map[string]any) (changed bool) {
		for i, unit := range itemsAt(document, "systemd", "units") {
			contents, _ := unit["contents"].(string)
			lines := strings.Split(contents, "\n")
			at := slices.IndexFunc(lines, keepsNamespace.MatchString)
			if at < 0 || strings.Contains(contents, "/run/netns") {
				continue
			}
			unit["contents"] = strings.Join(slices.Insert(lines, at, sharesNetworkNamespaces), "\n")
			changed = true
			remark("note: MachineConfig %q: %s: %s first makes /run/netns a mount: otherwise, the first \"ip netns add\" on a host hides the network namespaces of its Pods from the kubelet",
				config.Name, fmt.Sprintf("spec.config.systemd.units[%d].contents", i), unit["name"])
		}
		return changed
	})
}
