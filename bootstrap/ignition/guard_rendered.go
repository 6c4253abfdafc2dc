package ignition

import (
	"regexp"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// ofPools match the drop-ins of the kubelet's unit that a pool renders. The command of the wrapper must end with that
// of the kubelet and all of its variables: without them, the Node would be outside its pool.
var ofPools = map[string]*regexp.Regexp{
	WrapperDropin: regexp.MustCompile(`^\[Service\]\nEnvironment=` + KubeletCommandVariable + `=[A-Za-z0-9_./-]+\nExecStart=\n` +
		`ExecStart=(/(?:[A-Za-z0-9_./:=@,+-]+ )+)` + regexp.QuoteMeta(WrappedKubelet) + `\n$`),
	ReservedDropin: regexp.MustCompile(`^\[Service\]\nExecStartPre=/bin/sh ` + regexp.QuoteMeta(ReservedScriptPath) + `(?: [A-Za-z0-9_./-]+)*\n$`),
}

// isOfPool reports whether a drop-in of the kubelet's unit is one that a pool renders, in a rendered config.
func (g *guard) isOfPool(dropin types.Dropin) bool {
	pattern, has := ofPools[dropin.Name]
	if !g.rendered || !has || dropin.Contents == nil {
		return false
	}
	match := pattern.FindStringSubmatch(*dropin.Contents)
	return match != nil && (dropin.Name != WrapperDropin || GuardWrapper(strings.Fields(match[1])) == nil)
}
