package convert

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// Container runtimes of hosts, for which files are written.
const (
	runtimeCRIO       = "crio"
	runtimeContainerd = "containerd"
)

var containerRuntimes = []string{runtimeCRIO, runtimeContainerd}

// table is a table of TOML.
type table = map[string]any

// hostFiles are files in TOML by their paths on a host.
type hostFiles map[string][]byte

// add adds a file with one table.
func (f hostFiles) add(path string, content table) { f[path] = encodeTOML(content) }

// encodeTOML returns a table in TOML. Its keys are in alphabetical order.
func encodeTOML(content table) []byte {
	var text bytes.Buffer
	utilruntime.Must(toml.NewEncoder(&text).Encode(content)) // strings, numbers, booleans, lists and tables can be encoded
	return text.Bytes()
}

// fileMode makes a file readable for all users of the host: it holds no secret.
const fileMode = 0o644

// newFilesConfig returns a MachineConfig with files for the pool of a role. It is Butane, in which the files can be
// read and changed, or if that would be too large, in which they are compressed.
func newFilesConfig(name, role string, files hostFiles) poolv1.MachineConfig {
	text := butaneOf(files, func(content []byte) table { return table{"inline": string(content)} })
	if len(text) > maxButane {
		text = butaneOf(files, func(content []byte) table {
			var compressed bytes.Buffer
			to := gzip.NewWriter(&compressed)
			_, err := to.Write(content)
			utilruntime.Must(errors.Join(err, to.Close())) // it is in memory
			return table{"compression": "gzip", "source": "data:;base64," + base64.StdEncoding.EncodeToString(compressed.Bytes())}
		})
	}
	config := poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{input.RoleLabel: role}}}
	config.Spec.Butane = text
	return config
}

// maxButane is the maximum size of spec.butane in bytes.
const maxButane = 1 << 20

func butaneOf(files hostFiles, contents func([]byte) table) string {
	list := []table{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		list = append(list, table{"path": path, "mode": fileMode, "overwrite": true, "contents": contents(files[path])})
	}
	text, err := yaml.Marshal(table{"variant": "fcos", "version": "1.5.0", "storage": table{"files": list}})
	utilruntime.Must(err)
	return string(text)
}

// containerdHosts is the directory in which containerd has a directory for each registry.
const containerdHosts = "/etc/containerd/certs.d"

// endpoint is a server that containerd asks for the images of a registry.
type endpoint struct {
	url          string
	capabilities []string
	options      table
}

// addContainerdHosts adds the files of containerd for registries, and the setting by which containerd reads them. What
// containerd can't do is named: it has mirrors for whole registries only.
func addContainerdHosts(files hostFiles, registries registrySet, remark func(string, ...any)) {
	hosts := map[string]*registryScope{}
	for _, registry := range registries.sorted() {
		host, within, hasPath := strings.Cut(registry.scope, "/")
		warn := func(text string, args ...any) {
			remark("warning: %s: %s: "+text, append([]any{registry.from, registry.path}, args...)...)
		}
		if strings.HasPrefix(host, "*") {
			warn("is left out for %s: containerd has no settings for all subdomains of a domain: name the registries", registry.scope)
			continue
		}
		if hosts[host] == nil { // a registry before its paths
			of := *registry
			of.scope, of.mirrors = host, nil
			of.blocked, of.insecure = registry.blocked && !hasPath, registry.insecure && !hasPath
			hosts[host] = &of
		}
		of := hosts[host]
		switch {
		case !hasPath && registry.blocked && len(registry.mirrors) == 0:
			warn("containerd can't block %s: refuse its images with a ValidatingAdmissionPolicy", host)
			of.blocked = false
		case hasPath && registry.blocked:
			warn("containerd can't block a part of a registry: hosts still contact %s for %s", host, registry.scope)
		case hasPath && registry.insecure:
			warn("containerd has this setting for whole registries only, and it is left out for %s", registry.scope)
		}
		for _, mirror := range registry.mirrors {
			base, isSamePath := strings.CutSuffix(mirror.location, "/"+within)
			switch {
			case !hasPath:
				of.mirrors = append(of.mirrors, mirror)
			case !isSamePath || mirror.forTags:
				warn("containerd has mirrors for whole registries only: %s is left out as a mirror of %s. A mirror of all of %s can be used", mirror.location, registry.scope, host)
			case !slices.ContainsFunc(of.mirrors, func(has registryMirror) bool { return has.location == base && !has.forTags }):
				mirror.location = base
				of.mirrors = append(of.mirrors, mirror)
				warn("containerd has mirrors for whole registries only: hosts also ask %s for the other images of %s by digest", base, host)
			}
		}
	}
	for host, registry := range hosts {
		if endpoints := endpointsOf(registry); len(endpoints) > 0 {
			files[path.Join(containerdHosts, host, "hosts.toml")] = hostsTOML(endpoints, registry)
		}
	}
	if len(files) > 0 {
		files.add(containerdDropin("image-registries"), table{"version": containerdVersion,
			"plugins": table{"io.containerd.cri.v1.images": table{"registry": table{"config_path": containerdHosts}}}})
	}
}

// endpointsOf returns the servers of a registry in their order: its mirrors, and the registry itself if it is insecure.
func endpointsOf(registry *registryScope) (endpoints []endpoint) {
	tags := sets.New[string]()
	for _, mirror := range registry.mirrors {
		if mirror.forTags {
			tags.Insert(mirror.location)
		}
	}
	add := func(location string, insecure bool, capabilities ...string) {
		host, within, hasPath := strings.Cut(location, "/")
		for _, scheme := range []string{"https", "http"} {
			of := endpoint{url: scheme + "://" + host, capabilities: capabilities, options: table{}}
			if hasPath {
				of.url += "/v2/" + within
				of.options["override_path"] = true
			}
			if scheme == "https" && insecure {
				of.options["skip_verify"] = true
			}
			isKnown := slices.ContainsFunc(endpoints, func(has endpoint) bool { return has.url == of.url })
			if !isKnown && (scheme == "https" || insecure) {
				endpoints = append(endpoints, of)
			}
		}
	}
	for _, mirror := range registry.mirrors {
		if tags.Has(mirror.location) {
			add(mirror.location, mirror.insecure, "pull", "resolve")
		} else {
			add(mirror.location, mirror.insecure, "pull") // by digest only
		}
	}
	if registry.insecure && !registry.blocked {
		add(registry.scope, true, "pull", "resolve")
	}
	return endpoints
}

// hostsTOML returns a hosts.toml, in which the order counts. The last server replaces the registry if this is blocked
// or insecure.
func hostsTOML(endpoints []endpoint, registry *registryScope) []byte {
	tableOf := func(of endpoint) table {
		options := table{"capabilities": of.capabilities}
		for name, value := range of.options {
			options[name] = value
		}
		return options
	}
	var text bytes.Buffer
	if registry.blocked || registry.insecure {
		last := len(endpoints) - 1
		server := tableOf(endpoints[last])
		server["server"] = endpoints[last].url
		text.Write(encodeTOML(server))
		endpoints = endpoints[:last]
	}
	for _, of := range endpoints {
		text.Write(bytes.TrimPrefix(encodeTOML(table{"host": table{of.url: tableOf(of)}}), []byte("[host]\n"))) // a table can't be defined twice
	}
	return text.Bytes()
}

// registriesConf is the drop-in with the registries of CRI-O and Podman. Drop-ins with a later name override it.
const registriesConf = "/etc/containers/registries.conf.d/01-image-registries.conf"

// addRegistriesConf adds the file of CRI-O and Podman for registries, and for those in which images without a registry
// in their name are searched.
func addRegistriesConf(files hostFiles, registries registrySet, search []string) {
	content := table{}
	if len(search) > 0 {
		content["unqualified-search-registries"] = search
	}
	var list []table
	for _, registry := range registries.sorted() {
		entry := table{"location": registry.scope}
		if registry.scope[0] == '*' { // only a prefix can be a domain
			entry = table{"prefix": registry.scope}
		}
		if registry.blocked {
			entry["blocked"] = true
		}
		if registry.insecure {
			entry["insecure"] = true
		}
		var mirrors []table
		for _, mirror := range registry.mirrors {
			of := table{"location": mirror.location, "pull-from-mirror": "digest-only"}
			if mirror.forTags {
				of["pull-from-mirror"] = "tag-only"
			}
			if mirror.insecure {
				of["insecure"] = true
			}
			mirrors = append(mirrors, of)
		}
		if len(mirrors) > 0 {
			entry["mirror"] = mirrors
		}
		list = append(list, entry)
	}
	if len(list) > 0 {
		content["registry"] = list
	}
	if len(content) > 0 {
		files.add(registriesConf, content)
	}
}
