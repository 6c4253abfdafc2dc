// Command release writes what a release has besides manifests: container images, the archives and the krew manifest of
// the kubectl plugin, a software bill of materials, and checksums. The same programs always result in the same bytes.
// It needs no container runtime, no base image and, except for "push", no network.
package main

import (
	"errors"
	"fmt"
	"os"
)

const usage = `release writes the files of a release.

Usage:
  release images OUTPUT FOLDER NAME,ARCHITECTURE,PROGRAM[,USER]...
                                                              write images to an OCI archive; FOLDER, or "", is part of each
  release push ARCHIVE                                        push its images, with the credentials of docker login
  release plugin DIRECTORY VERSION URL OS-ARCHITECTURE...     pack kubectl-poolboot-OS-ARCHITECTURE of the directory for URL
  release sbom OUTPUT VERSION PROGRAM...                      write which modules the programs were built from (CycloneDX)
  release sums DIRECTORY                                      write SHA256SUMS of all files of the directory
`

var errUsage = errors.New("wrong arguments")

func main() {
	err := run(os.Args[1:])
	if errors.Is(err, errUsage) {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) >= 4 && args[0] == "images":
		return writeImages(args[1], args[2], args[3:])
	case len(args) == 2 && args[0] == "push":
		return push(args[1])
	case len(args) >= 5 && args[0] == "plugin":
		return writePlugin(args[1], args[2], args[3], args[4:])
	case len(args) >= 4 && args[0] == "sbom":
		return writeSBOM(args[1], args[2], args[3:])
	case len(args) == 2 && args[0] == "sums":
		return writeSums(args[1])
	}
	return errUsage
}
