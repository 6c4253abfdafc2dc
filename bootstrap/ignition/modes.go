package ignition

import (
	"fmt"
	"strconv"
)

// CheckModes returns a warning for each file and directory whose group or others can do what the owner can't. This is
// mostly an octal mode in a decimal place or the other way around: 420 is 0644, but 0420 is 272.
func CheckModes(c Config) (warnings []Problem) {
	check := func(path string, mode *int) {
		if mode == nil || !isInverted(*mode) {
			return
		}
		message := fmt.Sprintf("%d is %#o, with which the group or others can do what the owner can't", *mode, *mode)
		if octal, err := strconv.ParseInt(strconv.Itoa(*mode), 8, 0); err == nil && !isInverted(int(octal)) { // 644
			message += fmt.Sprintf(": if %#o is meant, set %d, or %#[1]o in YAML", octal, octal)
		} else if decimal, err := strconv.Atoi(strconv.FormatInt(int64(*mode), 8)); err == nil && decimal <= 0o7777 && !isInverted(decimal) { // 0420
			message += fmt.Sprintf(": if %#o is meant, set it, or the decimal %d without a leading 0", decimal, decimal)
		}
		addProblem(&warnings, func() Problem { return Problem{Path: path + ".mode", Message: message} })
	}
	for i, file := range c.Storage.Files {
		check(fmt.Sprintf("storage.files[%d]", i), file.Mode)
	}
	for i, directory := range c.Storage.Directories {
		check(fmt.Sprintf("storage.directories[%d]", i), directory.Mode)
	}
	return LimitProblems(warnings)
}

// isInverted reports whether the group or others can do what the owner can't.
func isInverted(mode int) bool {
	owner, group, others := mode>>6&7, mode>>3&7, mode&7
	return (group|others)&^owner != 0
}
