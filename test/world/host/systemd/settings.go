package systemd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// understood are the settings that this package implements.
var understood = map[string][]string{
	"Unit": {
		"After", "Before", "Wants", "Requires", "ConditionPathExists", "StartLimitIntervalSec", "StartLimitBurst",
		"DefaultDependencies",
	},
	"Service": {
		"Type", "RemainAfterExit", "Environment", "EnvironmentFile", "ExecStartPre", "ExecStart", "ExecStartPost",
		"Restart", "RestartSec", "TimeoutStartSec",
	},
	"Path":    {"PathExists", "Unit"},
	"Install": {"WantedBy", "RequiredBy"},
}

// withoutEffect are the settings without an effect on a simulated host: texts, stopping (a host is powered off, not
// shut down), accounting and limits.
var withoutEffect = map[string][]string{
	"Unit": {"Description", "Documentation"},
	"Service": {
		"ExecReload", "ExecStop", "ExecStopPost", "KillMode", "TimeoutStopSec", "StandardOutput", "StandardError",
		"SyslogIdentifier", "CPUAccounting", "MemoryAccounting", "IOAccounting", "LimitNOFILE", "LimitNPROC",
		"LimitCORE", "TasksMax", "OOMScoreAdjust", "Slice", "Delegate",
	},
	"Path":    {},
	"Install": {},
}

// check refuses unsupported settings.
func (u *Unit) check() error {
	var errs []error
	for _, option := range u.options {
		if strings.HasPrefix(option.Section, "X-") {
			continue
		}
		if !slices.Contains(understood[option.Section], option.Name) &&
			!slices.Contains(withoutEffect[option.Section], option.Name) {
			errs = append(errs, fmt.Errorf("unit %s: [%s] %s=: not understood; see test/world/host/systemd/settings.go",
				u.Name, option.Section, option.Name))
		}
	}
	return errors.Join(errs...)
}

// duration parses a time span setting. Plain numbers are seconds. 0 as a timeout and infinity are unlimited.
func (u *Unit) duration(section, name string, otherwise time.Duration) (time.Duration, error) {
	value := u.last(section, name, "")
	switch value {
	case "":
		return otherwise, nil
	case "infinity":
		return 0, nil
	}
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return time.Duration(seconds * float64(time.Second)), nil
	}
	span := strings.NewReplacer("min", "m", "sec", "s", " ", "").Replace(value)
	parsed, err := time.ParseDuration(span)
	if err != nil {
		return 0, fmt.Errorf("unit %s: [%s] %s=%s: not a time span", u.Name, section, name, value)
	}
	return parsed, nil
}

// yes parses a boolean setting.
func (u *Unit) yes(section, name, otherwise string) (bool, error) {
	switch value := strings.ToLower(u.last(section, name, otherwise)); value {
	case "1", "yes", "y", "true", "t", "on":
		return true, nil
	case "0", "no", "n", "false", "f", "off":
		return false, nil
	default:
		return false, fmt.Errorf("unit %s: [%s] %s=%s: neither yes nor no", u.Name, section, name, value)
	}
}

// oneOf parses a setting with a fixed set of values.
func (u *Unit) oneOf(section, name string, values ...string) (string, error) {
	value := u.last(section, name, values[0])
	if !slices.Contains(values, value) {
		return "", fmt.Errorf("unit %s: [%s] %s=%s: not understood; known are %s",
			u.Name, section, name, value, strings.Join(values, ", "))
	}
	return value, nil
}

// conditionsHold reports whether each ConditionPathExists= is true in root.
func (u *Unit) conditionsHold(root string) (bool, error) {
	for _, condition := range u.list("Unit", "ConditionPathExists") {
		path, negated := strings.CutPrefix(condition, "!")
		if !strings.HasPrefix(path, "/") {
			return false, fmt.Errorf("unit %s: [Unit] ConditionPathExists=%s: not an absolute path", u.Name, condition)
		}
		there, err := exists(root, path)
		if err != nil {
			return false, err
		}
		if there == negated {
			return false, nil
		}
	}
	return true, nil
}
