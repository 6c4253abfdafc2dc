// Package clusterctl_test tests Poolboot as its users have it: releases, installed and upgraded with clusterctl, whose
// Pods run on real Nodes. Simulated are the hardware and Cluster API's Metal3 provider.
package clusterctl_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterctl"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/management"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// The releases that the tests install, and upgrade to.
const (
	firstRelease = "v0.1.0"
	nextRelease  = "v0.1.1"
)

// upgradable is an earlier commit to upgrade from, as long as there is no tag of a release. Of a recent one, most is
// compiled already.
const upgradable = "ab35405edd00df5703c1858f62c0cea784559e75"

var (
	cluster *management.Cluster
	cli     *clusterctl.Clusterctl
	// releases is the folder with the releases.
	releases string
)

func TestClusterctl(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "Poolboot as Pods")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	start := time.Now()
	rack, err := baremetal.NewRack(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(rack.Close)
	dir, err := os.MkdirTemp("", "pods-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	releases = filepath.Join(dir, "releases")
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		cluster, err = management.Start(bothCtx, management.Options{Rack: rack, Dir: dir, Log: GinkgoWriter})
		return err
	})
	both.Go(func() error { return buildPrevious(bothCtx, filepath.Join(dir, "previous")) })
	err = both.Wait()
	if cluster != nil {
		DeferCleanup(cluster.Stop)
	}
	Expect(err).NotTo(HaveOccurred())
	_, port, err := net.SplitHostPort(cluster.Endpoint)
	Expect(err).NotTo(HaveOccurred())
	cli, err = clusterctl.New(ctx, filepath.Join(dir, "repository"), releases, map[string]string{
		"POOLBOOT_CONFIG_SERVER_HOST": cluster.ServiceAddress(), "POOLBOOT_CONFIG_SERVER_IP": cluster.ServiceAddress(),
		"POOLBOOT_API_SERVER_PORT": port,
	})
	Expect(err).NotTo(HaveOccurred())
	for _, archive := range []string{cli.Images, archiveOf(firstRelease)} {
		Expect(cluster.LoadImages(ctx, archive)).To(Succeed())
	}
	AddReportEntry("management cluster", time.Since(start))
}, NodeTimeout(20*time.Minute))

// buildPrevious builds the release to upgrade from in a folder, from the last tag of a release or else an earlier
// commit. A clone without its history has only this commit.
func buildPrevious(ctx context.Context, dir string) error {
	source := upgradable
	if tag, err := exec.CommandContext(ctx, "git", "-C", sourcetree.Path(), "describe", "--tags", "--abbrev=0", "--match=v*").Output(); err == nil {
		source = strings.TrimSpace(string(tag))
	}
	if err := exec.CommandContext(ctx, "git", "-C", sourcetree.Path(), "cat-file", "-e", source+"^{commit}").Run(); err != nil {
		AddReportEntry("the release to upgrade from is built from this commit, because the clone does not have " + source)
		return buildRelease(ctx, sourcetree.Path(), firstRelease)
	}
	script := `mkdir -p "$3/bin" && git -C "$1" archive "$2" | tar x -C "$3" && cp "$1/bin/kubectl" "$3/bin"`
	if output, err := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script, "bash", sourcetree.Path(), source, dir).CombinedOutput(); err != nil {
		return fmt.Errorf("source of %s: %w: %s", source, err, output)
	}
	return buildRelease(ctx, dir, firstRelease)
}

// buildRelease builds a release from a source tree, for the architecture of this machine.
func buildRelease(ctx context.Context, source, version string) error {
	command := exec.CommandContext(ctx, "make", "-C", source, "release", "VERSION="+version, "OUT="+releases,
		"ARCHITECTURES="+runtime.GOARCH, "PLUGIN_PLATFORMS=linux-"+runtime.GOARCH)
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	command.Env = append(os.Environ(), "MAKEFLAGS=")
	return command.Run()
}

// archiveOf returns the archive with the images of a release.
func archiveOf(version string) string {
	return filepath.Join(releases, "bootstrap-poolboot", version, "images.tar")
}
