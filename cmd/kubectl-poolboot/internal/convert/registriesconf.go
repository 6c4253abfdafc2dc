package convert

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
