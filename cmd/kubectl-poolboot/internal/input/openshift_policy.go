package input

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// policySpec is the spec of a MachineConfiguration. Of its fields, Poolboot has the node disruption policies.
type policySpec struct {
	NodeDisruptionPolicy struct {
		Files []struct {
			Path    string            `json:"path"`
			Actions []openShiftAction `json:"actions"`
		} `json:"files"`
		Units []struct {
			Name    poolv1.UnitName   `json:"name"`
			Actions []openShiftAction `json:"actions"`
		} `json:"units"`
		SSHKey struct {
			Actions []openShiftAction `json:"actions"`
		} `json:"sshkey"`
	} `json:"nodeDisruptionPolicy"`
}

type openShiftAction struct {
	Type    poolv1.ActionType `json:"type"`
	Reload  openShiftService  `json:"reload"`
	Restart openShiftService  `json:"restart"`
}

type openShiftService struct {
	ServiceName poolv1.UnitName `json:"serviceName"`
}

// DisruptionPolicy returns the node disruption policies of OpenShift as Poolboot's. The remarks name those that match no file in
// OpenShift and are left out. An empty list of actions means None for files and units, and the default for SSH keys.
// The errors have the paths of OpenShift's fields.
func DisruptionPolicy(c *MachineConfiguration) (policy poolv1.DisruptionPolicy, remarks []string, errs field.ErrorList) {
	from, at := c.Spec.NodeDisruptionPolicy, field.NewPath("spec", "nodeDisruptionPolicy")
	none := poolv1.DisruptionActions{{Type: poolv1.ActionNone}}
	var kept []int // the indices of the files in OpenShift's list
	for i, file := range from.Files {
		clean := path.Clean(file.Path)
		if !path.IsAbs(clean) || clean == "/" {
			remarks = append(remarks, fmt.Sprintf("MachineConfiguration %q: %s is left out: OpenShift compares it with the paths of files, and %q matches none: "+
				"set the absolute path of a file, or remove it", c.Name, at.Child("files").Index(i).Child("path"), file.Path))
			continue
		}
		actions := convertActions(file.Actions)
		if len(actions) == 0 {
			actions = none
		}
		policy.Files = append(policy.Files, poolv1.PathDisruptionPolicy{Path: clean, Actions: actions})
		kept = append(kept, i)
	}
	for _, unit := range from.Units {
		actions := convertActions(unit.Actions)
		if len(actions) == 0 {
			actions = none
		}
		policy.Units = append(policy.Units, poolv1.UnitDisruptionPolicy{Name: unit.Name, Actions: actions})
	}
	policy.SSHKeys.Actions = convertActions(from.SSHKey.Actions)
	errs = pool.CheckDisruption(policy, at)
	for _, err := range errs {
		err.Field = pathOf(c, err.Field, kept)
	}
	return policy, remarks, errs
}

var (
	fileIndex  = regexp.MustCompile(`\.files\[(\d+)\]`)
	unitAction = regexp.MustCompile(`\.(files|units|sshkey)(?:\[(\d+)\])?\.actions\[(\d+)\]\.unit$`)
)

// pathOf returns the path of OpenShift's field for one in the policy of Poolboot's, in which the files with some
// indices are kept.
func pathOf(c *MachineConfiguration, path string, kept []int) string {
	path = strings.Replace(path, ".sshKeys.", ".sshkey.", 1)
	path = fileIndex.ReplaceAllStringFunc(path, func(index string) string {
		i, _ := strconv.Atoi(fileIndex.FindStringSubmatch(index)[1])
		return fmt.Sprintf(".files[%d]", kept[i])
	})
	match := unitAction.FindStringSubmatch(path)
	if match == nil {
		return path
	}
	i, _ := strconv.Atoi(match[2])
	j, _ := strconv.Atoi(match[3])
	from := c.Spec.NodeDisruptionPolicy
	actions := from.SSHKey.Actions
	switch match[1] {
	case "files":
		actions = from.Files[i].Actions
	case "units":
		actions = from.Units[i].Actions
	}
	service := "restart.serviceName"
	if actions[j].Type == poolv1.ActionReload {
		service = "reload.serviceName"
	}
	return strings.TrimSuffix(path, "unit") + service
}

func convertActions(actions []openShiftAction) (converted poolv1.DisruptionActions) {
	for _, action := range actions {
		converted = append(converted, poolv1.DisruptionAction{Type: action.Type, Unit: cmp.Or(action.Reload.ServiceName, action.Restart.ServiceName)})
	}
	return converted
}
