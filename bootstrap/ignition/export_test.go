package ignition

import (
	"maps"
	"path"
	"slices"
)

// Reserved returns what Guard and GuardArguments refuse, as the documentation lists it: paths (a directory ends in a
// slash), units, drop-ins, kubelet flags and settings, variables, kernel arguments.
func Reserved() []string {
	all := slices.Collect(maps.Keys(remedies))
	for _, directory := range reservedDirectories {
		all = append(all, directory+"/")
	}
	for _, name := range controlPlanePaths {
		if path.Ext(name) == "" {
			name += "/"
		}
		all = append(all, name)
	}
	all = append(all, KubeletUnit, OwnUnitPrefix+"*", KubeletUnit+".d/"+kubeadmDropin, KubeletUnit+".d/"+OwnDropin, KubeletUnit+".d/"+WrapperDropin, KubeletUnit+".d/"+ReservedDropin)
	for _, flag := range identityFlagNames {
		all = append(all, "--"+flag)
	}
	for _, reserved := range reservedArguments {
		all = append(all, reserved.pattern)
	}
	all = slices.Concat(all, identitySettings, reservedVariables, bootTargetArguments)
	slices.Sort(all)
	return slices.Compact(all)
}
