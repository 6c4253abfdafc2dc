// Package staticpods finds out whether the static Pods of a host work, by the HTTP probes of their manifests, which it
// sends as the kubelet does. So it also tells when no API server answers, as on a host of the control plane that runs
// its own. And it finds what they mount. It changes nothing, and sends to addresses of this host only.
package staticpods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	// usualDirectory is the directory of manifests if no configuration of the kubelet names one: that of kubeadm.
	usualDirectory = "/etc/kubernetes/manifests"
	// maxManifests is the maximum number of manifests that are read, and of files that configure the kubelet.
	maxManifests = 64
	// maxEntries is the maximum number of entries of a directory that are read.
	maxEntries = 1000
	// maxTime is how long all probes may take together, and maxAtOnce how many are sent at the same time.
	maxTime   = 30 * time.Second
	maxAtOnce = 16
	// maxNamed is how many manifests a message names.
	maxNamed = 3
)

// Host is a host with a kubelet.
type Host struct {
	// Root is the root directory of the host.
	Root *os.Root
}

// lookInterval is the time between the looks of Passing, which looks maxLooks times. Tests shorten it.
var lookInterval = 3 * time.Second

const maxLooks = 3

// Passing returns the paths of the manifests that have probes, all of which pass. Those of which one does not are
// looked at again, because a probe can fail for a moment. If all pass at once, as usual, this costs no time.
func (h Host) Passing(ctx context.Context) (passing []string) {
	names := h.manifests()
	for look := 1; ; look++ {
		why := h.probeAll(ctx, names, false)
		names = slices.DeleteFunc(names, func(name string) bool {
			if why[name] == nil {
				passing = append(passing, name)
			}
			return why[name] == nil || errors.Is(why[name], errNoProbes)
		})
		if len(names) == 0 || look == maxLooks {
			slices.Sort(passing)
			return passing
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookInterval):
		}
	}
}

// Volumes returns the paths of the host that static Pods mount. A manifest that can't be read has no Pod that runs.
func (h Host) Volumes() (paths []string) {
	for _, name := range h.manifests() {
		raw, err := h.read(name)
		if err != nil {
			continue
		}
		p, err := podOf(raw)
		if err != nil {
			continue
		}
		for _, volume := range p.Spec.Volumes {
			if path.IsAbs(volume.HostPath.Path) {
				paths = append(paths, path.Clean(volume.HostPath.Path))
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// Failing returns which of some manifests have a probe that does not pass, or can't be read, and why, "" if there are
// none.
func (h Host) Failing(ctx context.Context, manifests []string) string {
	var failing []string
	for name, why := range h.probeAll(ctx, manifests, true) {
		failing = append(failing, fmt.Sprintf("static Pod %s: %v", name, why))
	}
	slices.Sort(failing)
	if more := len(failing) - maxNamed; more > 0 {
		failing = append(failing[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(failing, "; ")
}

// errNoProbes means that a manifest says nothing about whether its Pod works.
var errNoProbes = errors.New("it has no HTTP probe")

// probeAll returns why manifests do not pass. One without probes passes if that is allowed.
func (h Host) probeAll(ctx context.Context, manifests []string, allowsNone bool) map[string]error {
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	why := map[string]error{}
	fail := func(name string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if is := why[name]; is == nil || err.Error() < is.Error() { // the same one each time
			why[name] = err
		}
	}
	turns := make(chan struct{}, maxAtOnce)
	for _, name := range manifests {
		raw, err := h.read(name)
		var probes []probe
		if err == nil {
			probes, err = parse(raw)
		}
		if err == nil && len(probes) == 0 && !allowsNone {
			err = errNoProbes
		}
		if err != nil {
			fail(name, err)
		}
		for _, p := range probes {
			all.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				if err := p.send(limited); err != nil {
					fail(name, fmt.Errorf("%s: %w", p.String(), err))
				}
			})
		}
	}
	all.Wait()
	return why
}

// manifests returns the paths of the manifests of static Pods, in order. As for the kubelet, a hidden file is none.
func (h Host) manifests() (names []string) {
	for _, directory := range h.directories() {
		entries := h.entries(directory)
		if entries == nil {
			names = append(names, directory) // it can be a single manifest
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry, ".") {
				names = append(names, path.Join(directory, entry))
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxManifests)]
}

// directories returns the staticPodPath of every configuration from which a kubelet can take it: that of another one
// has no Pods that run.
func (h Host) directories() (directories []string) {
	files := []string{ignition.KubeletConfigPath, ignition.KubeadmKubeletConfigPath}
	for _, entry := range h.entries(ignition.KubeletConfigDirectory) {
		files = append(files, path.Join(ignition.KubeletConfigDirectory, entry))
	}
	for _, name := range files[:min(len(files), maxManifests)] {
		var configuration struct {
			StaticPodPath string `yaml:"staticPodPath"`
		}
		raw, err := h.read(name)
		if err != nil || yaml.Unmarshal(raw, &configuration) != nil || configuration.StaticPodPath == "" {
			continue
		}
		directory := configuration.StaticPodPath
		if !path.IsAbs(directory) {
			directory = path.Join(path.Dir(name), directory)
		}
		if directory = path.Clean(directory); !slices.Contains(directories, directory) {
			directories = append(directories, directory)
		}
	}
	if directories == nil {
		return []string{usualDirectory}
	}
	return directories
}

// entries returns the names of the entries of a directory, in order, or nil if it is none.
func (h Host) entries(directory string) (names []string) {
	file, err := h.open(directory)
	if err != nil {
		return nil
	}
	defer file.Close()
	names, err = file.Readdirnames(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	slices.Sort(names)
	return append([]string{}, names...)
}

// read returns the contents of a regular file.
func (h Host) read(name string) ([]byte, error) {
	file, err := h.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	switch {
	case err != nil:
		return nil, errors.New("it can't be read")
	case len(raw) > maxManifest:
		return nil, fmt.Errorf("it has more than %d bytes", maxManifest)
	}
	return raw, nil
}

// open opens a file or a directory, and does not wait for the writer of a pipe.
func (h Host) open(name string) (*os.File, error) {
	file, err := h.Root.OpenFile(strings.TrimPrefix(path.Clean(name), "/"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it does not exist")
	case err != nil:
		return nil, errors.New("it can't be read")
	}
	return file, nil
}
