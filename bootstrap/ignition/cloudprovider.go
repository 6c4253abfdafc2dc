package ignition

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// externalCloudProviderFlag matches the kubelet's flag --cloud-provider with the value external. Like the kubelet, it
// accepts _ for -.
var externalCloudProviderFlag = regexp.MustCompile(`--cloud[-_]provider[=\s,"'\\]+external(?:[^\w-]|$)`)

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
		if !isBelow(name, staticPods) && hasExternalCloudProvider(readableContents(file, &limit)) {
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
	return !isProgram && bytes.Contains(text, []byte("external")) && externalCloudProviderFlag.Match(removeComments(text))
}

// readableContents returns the contents of a file and what is appended to it, without what is at another URL or larger
// than the limit, which it reduces by what it returns.
func readableContents(file types.File, limit *int64) (text []byte) {
	for _, part := range append([]types.Resource{file.Contents}, file.Append...) {
		if data, err := Contents(part, *limit); err == nil {
			*limit -= int64(len(data))
			text = append(text, data...)
		}
	}
	return text
}
