package systemd

import (
	"context"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// runtimeDirectory is where units are masked until the next boot.
const runtimeDirectory = "/run/systemd/system"

// Differing returns the units, sorted, that are enabled or disabled otherwise than they should be, and those that are
// masked on the host, by a link in /etc or /run that is not part of the configuration. For update.Preset, only masks
// count. What Apply skips does not differ. A unit whose file systemctl can't read is not enabled.
func (e Enablement) Differing(ctx context.Context, units map[string]update.Enablement) (differing, masked []string, err error) {
	links := map[string]string{}
	if e.Links != nil {
		links = e.Links()
	}
	var wanted []string
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		switch {
		case e.isMasked(unit, links):
			masked = append(masked, unit)
		case units[unit] != update.Preset:
			wanted = append(wanted, unit)
		}
	}
	states, err := e.states(ctx, wanted)
	if err != nil {
		return nil, nil, err
	}
	for i, unit := range wanted {
		switch state := states[i]; {
		case units[unit] == update.Enabled && (state == disabled || state == "enabled-runtime" || state == unreadable),
			units[unit] == update.Disabled && state == enabled && !isLinked(unit, links):
			differing = append(differing, unit)
		}
	}
	return differing, masked, nil
}

// isMasked reports whether a link masks a unit that is not one of these links.
func (e Enablement) isMasked(unit string, links map[string]string) bool {
	for _, directory := range []string{hosttree.UnitDirectory, runtimeDirectory} {
		name := path.Join(directory, unit)
		if target, err := os.Readlink(e.path(name)); err == nil && target == hosttree.MaskTarget && links[name] == "" {
			return true
		}
	}
	return false
}

// isLinked reports whether one of these links enables a unit.
func isLinked(unit string, links map[string]string) bool {
	for link := range links {
		if strings.HasPrefix(link, hosttree.UnitDirectory+"/") && path.Base(link) == unit && path.Dir(link) != hosttree.UnitDirectory {
			return true
		}
	}
	return false
}
