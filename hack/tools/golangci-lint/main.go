// Command golangci-lint is golangci-lint with kube-api-linter linked in: one program lints the Go code and the API.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"
	_ "sigs.k8s.io/kube-api-linter" // registers itself as a plugin
)

func main() {
	if err := commands.Execute(build()); err != nil {
		fmt.Fprintf(os.Stderr, "golangci-lint: %v\n", err)
		os.Exit(exitcodes.Failure)
	}
}

// build describes this program for "golangci-lint version". The version is in the key of golangci-lint's cache of
// results, so it names both linters.
func build() commands.BuildInfo {
	info := commands.BuildInfo{Version: "(unknown)", Commit: "(unknown)", Date: "(unknown)"}
	read, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	versions := map[string]string{}
	for _, module := range read.Deps {
		versions[module.Path] = module.Version
	}
	info.GoVersion = read.GoVersion
	info.Version = fmt.Sprintf("%s with kube-api-linter %s", versions["github.com/golangci/golangci-lint/v2"], versions["sigs.k8s.io/kube-api-linter"])
	return info
}
