package convert

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
)

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
