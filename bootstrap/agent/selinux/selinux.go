// Package selinux asks the SELinux policy of a host for the labels of files. The host's matchpathcon answers: only
// libselinux knows all files that a policy, its substitutions and an administrator's additions consist of.
package selinux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	program = "matchpathcon"
	// enabled exists if the kernel runs with SELinux.
	enabled = "/sys/fs/selinux/enforce"
	// none is what the program prints if the policy has no label for a path.
	none = "<<none>>"
	// maxPaths is how many paths the program gets at a time: fewer than the 2 MiB that arguments may have.
	maxPaths = 256
)

// Runner runs programs of the host, and finds them: a command.Runner.
type Runner interface {
	Find(name string) (string, error)
	Run(ctx context.Context, name string, arguments ...string) ([]byte, error)
}

// LabelsOf returns the labels that the policy has for files of a class, such as "file", "dir" and "lnk_file", at paths.
// A label is empty if it has none. All are if SELinux is not enabled, or the host has no matchpathcon.
func LabelsOf(ctx context.Context, runner Runner, root, class string, paths []string) ([]string, error) {
	labels := make([]string, 0, len(paths))
	if _, err := os.Stat(filepath.Join(root, enabled)); errors.Is(err, fs.ErrNotExist) {
		return labels[:len(paths)], nil
	} else if err != nil {
		return nil, err
	}
	if _, err := runner.Find(program); err != nil {
		return labels[:len(paths)], nil
	}
	for paths := range slices.Chunk(paths, maxPaths) {
		// -N: as the kernel knows them, and -n: without the paths.
		output, err := runner.Run(ctx, program, append([]string{"-N", "-n", "-m", class}, paths...)...)
		if err != nil {
			return nil, fmt.Errorf("ask the SELinux policy for labels: %w", err)
		}
		lines := strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
		if len(lines) != len(paths) {
			return nil, fmt.Errorf("%s printed %d labels for %d paths", program, len(lines), len(paths))
		}
		for _, line := range lines {
			labels = append(labels, strings.TrimSuffix(line, none))
		}
	}
	return labels, nil
}
