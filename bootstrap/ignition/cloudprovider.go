package ignition

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// externalCloudProviderFlag matches the kubelet's flag --cloud-provider with the value external. Like the kubelet, it
// accepts _ for -.
var externalCloudProviderFlag = regexp.MustCompile(`--cloud[-_]provider[=\s,]+external(?:[^\w-]|$)`)

// staticPods is where the kubelet reads the manifests of static Pods: programs of the control plane have the flag
// --cloud-provider too.
const staticPods = "/etc/kubernetes/manifests"

// FindExternalCloudProvider returns the entry of a configuration that passes --cloud-provider=external to the kubelet,
// or "" if there is none. It reads units, files and kernel arguments as Guard reads them, and does not know what the
// image contains.
func FindExternalCloudProvider(c Config) string {
	for _, argument := range c.KernelArguments.ShouldExist {
		if hasExternalCloudProvider([]byte(argument)) {
			return "kernelArguments " + string(argument)
		}
	}
	limit := int64(maxUnpackedBytes)
	for _, file := range c.Storage.Files {
		name := cleanPath(file.Path)
		if !isBelow(name, staticPods) && hasExternalCloudProvider([]byte(strings.Join(readableContents(file, &limit), ""))) {
			return "file " + name
		}
	}
	for _, unit := range c.Systemd.Units {
		if unit.Contents != nil && hasExternalCloudProvider([]byte(*unit.Contents)) {
			return "unit " + unit.Name
		}
		for _, dropin := range unit.Dropins {
			if dropin.Contents != nil && hasExternalCloudProvider([]byte(*dropin.Contents)) {
				return fmt.Sprintf("drop-in %s of unit %s", dropin.Name, unit.Name)
			}
		}
	}
	return ""
}

func hasExternalCloudProvider(text []byte) bool {
	isProgram := bytes.HasPrefix(text, []byte("\x7fELF")) // its strings can contain any flag
	if isProgram || !bytes.Contains(text, []byte("external")) && !hasQuotingInWords(text) {
		return false
	}
	return externalCloudProviderFlag.Match(unquote(removeComments(text)))
}
