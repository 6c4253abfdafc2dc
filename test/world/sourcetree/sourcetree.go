// Package sourcetree finds the files of the repository, for tests and programs that run in any of its directories.
package sourcetree

import (
	"errors"
	"os"
	"path/filepath"
)

// The root is found when the program starts, before a test changes the working directory.
var root, rootErr = findRoot()

// Root returns the root of the repository: the first directory with a go.mod from the working directory upwards.
func Root() (string, error) {
	return root, rootErr
}

// Path returns the absolute path of a file or directory of the repository. It panics outside the repository.
func Path(elements ...string) string {
	if rootErr != nil {
		panic(rootErr)
	}
	return filepath.Join(root, filepath.Join(elements...))
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod from the working directory upwards: run inside the repository")
		}
	}
}
