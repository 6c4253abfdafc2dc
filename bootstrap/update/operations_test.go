package update_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand"
	"path"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/golden"
)

const (
	unitDirectory = "/etc/systemd/system/"
	presets       = "Path /etc/systemd/system-preset/20-ignition.preset: "
	keys          = "Path ~core/.ssh/authorized_keys.d/ignition: "
)

var _ = Describe("The operations of a plan", func() {
	It("lead from any config to any other, and back", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 500 {
			before, after := parse(anyTree(random)), parse(anyTree(random))
			plan := update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
			Expect(plan.Obstacles).To(BeEmpty())
			host := install(before)
			host.run(plan.Operations)
			Expect(host).To(Equal(install(after)))
			host.run(plan.Operations)
			Expect(host).To(Equal(install(after)), "they are repeated")
			host.run(update.Undo(plan.Operations))
			Expect(host).To(Equal(install(before)), "they are undone")
		}
	})

	It("of Desired lead any host to a config", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 500 {
			config := parse(anyTree(random))
			host := install(config)
			for name := range host.paths {
				if random.Intn(3) == 0 && image(name) == "" {
					delete(host.paths, name)
				}
			}
			delete(host.enabled, "a.service")
			host.run(update.Desired(config))
			Expect(host).To(Equal(install(config)))
		}
	})

	It("of Desired leave files alone that are appended to", func() {
		Expect(update.Desired(parse(spec(file("/etc/a", `append: [{source: "data:,a"}]`))))).To(BeEmpty())
	})

	It("are none if nothing but the notation changes", func() {
		plan := planOf(file("/etc/a", `contents: {source: "data:,a"}`), file("/etc/a", `mode: 0644, contents: {source: "data:;base64,YQ=="}`))
		Expect(plan.Changes).To(HaveLen(1))
		Expect(plan.Operations).To(BeEmpty())
	})

	It("write the presets of instances in another order if only the order of units changes", func() {
		units := func(first, second string) string {
			return withIgnition("systemd: {units: [{name: a@" + first + ".service, enabled: true}, {name: a@" + second + ".service, enabled: true}]}")
		}
		plan := planOf(units("1", "2"), units("2", "1"))
		Expect(plan.Changes).To(BeEmpty())
		Expect(plan.Operations).To(ConsistOf(HaveField("Name", hosttree.PresetPath)))
	})

	DescribeTable("are ordered",
		func(before, after string, want ...string) {
			plan := planOf(before, after)
			Expect(plan.Obstacles).To(BeEmpty())
			var got []string
			for _, operation := range plan.Operations {
				got = append(got, operation.String())
			}
			Expect(got).To(Equal(append([]string(nil), want...)))
		},
		Entry("directories before what is in them, and hard links last", nothing,
			withIgnition(`storage: {directories: [{path: /b/d}], files: [{path: /b/d/f, mode: 1}, {path: /c/f, mode: 1}], links: [{path: /a, target: /b}, {path: /h, target: /b/d/f, hard: true}]}`),
			"Path /a: not configured -> Link", "Path /b/d: not configured -> Directory", "Path /c/f: not configured -> File", "Path /b/d/f: not configured -> File", "Path /h: not configured -> HardLink"),
		Entry("what is in a directory before the directory", withIgnition(`storage: {directories: [{path: /b}, {path: /b/d}], files: [{path: /b/d/f, mode: 1}]}`), nothing,
			"Path /b/d/f: File -> not configured", "Path /b/d: Directory -> not configured", "Path /b: Directory -> not configured"),
		Entry("a directory that becomes a link", withIgnition(`storage: {directories: [{path: /b}], files: [{path: /b/f, mode: 1}]}`), withIgnition(`storage: {links: [{path: /b, target: /c}]}`),
			"Path /b/f: File -> not configured", "Path /b: Directory -> Link"),
		Entry("a hard link to a file that is replaced", withIgnition(`storage: {files: [{path: /f, contents: {source: "data:,a"}}], links: [{path: /h, target: /f, hard: true}]}`),
			withIgnition(`storage: {files: [{path: /f, contents: {source: "data:,b"}}], links: [{path: /h, target: /f, hard: true}]}`), "Path /f: File -> File", "Path /h: HardLink -> HardLink"),
		Entry("owners before their files", nothing, withIgnition(`storage: {files: [{path: /f, user: {name: u}, group: {name: g}}]}, passwd: {users: [{name: u}], groups: [{name: g}]}`),
			"Group g: not configured -> configured", "User u: not configured -> configured", "Path /f: not configured -> File"),
		Entry("owners after their files", withIgnition(`storage: {files: [{path: /f, user: {name: u}, group: {name: g}}]}, passwd: {users: [{name: u}], groups: [{name: g}]}`), nothing,
			"Path /f: File -> not configured", "User u: configured -> not configured", "Group g: configured -> not configured"),
		Entry("a new unit", nothing, unit(`contents: "[Unit]", enabled: true`), presets+"not configured -> File", "Path "+unitDirectory+"a.service: not configured -> File", "Enablement a.service: Preset -> Enabled"),
		Entry("a unit that stays enabled", unit(`contents: "[Unit]", enabled: true`), unit(`contents: "[Service]", enabled: true`),
			"Enablement a.service: Enabled -> Disabled", "Path "+unitDirectory+"a.service: File -> File", "Enablement a.service: Disabled -> Enabled"),
		Entry("a removed unit", unit(`contents: "[Unit]", enabled: true`), nothing,
			"Enablement a.service: Enabled -> Disabled", "Path "+unitDirectory+"a.service: File -> not configured", presets+"File -> not configured", "Enablement a.service: Disabled -> Preset"),
		Entry("SSH keys", user("sshAuthorizedKeys: [a], shell: /bin/sh"), user("sshAuthorizedKeys: [b], shell: /bin/sh"), keys+"File -> File"),
		Entry("a user with keys", nothing, user("sshAuthorizedKeys: [a]"), "User core: not configured -> configured",
			"Path ~core/.ssh: not configured -> Directory", "Path ~core/.ssh/authorized_keys.d: not configured -> Directory", keys+"not configured -> File"),
		Entry("a new unit without enabled", nothing, unit(`contents: "[Unit]"`), "Path "+unitDirectory+"a.service: not configured -> File", "Enablement a.service: Preset -> Preset"),
		Entry("a unit of the image", unit("enabled: true"), unit("enabled: false"), "Enablement a.service: Enabled -> Disabled", presets+"File -> File"),
		Entry("a masked unit", unit(`contents: "[Unit]", enabled: true`), unit(`contents: "[Unit]", enabled: true, mask: true`),
			"Enablement a.service: Enabled -> Disabled", "Path "+unitDirectory+"a.service: File -> Link"),
		Entry("a unit that must not be masked", nothing, unit("mask: false"), "Path "+unitDirectory+"a.service: not configured -> Unmasked"),
		Entry("only the drop-in that changes", unit(`enabled: true, dropins: [{name: a.conf, contents: "[Unit]"}, {name: b.conf, contents: "[Unit]"}]`),
			unit(`enabled: true, dropins: [{name: a.conf, contents: "[Service]"}, {name: b.conf, contents: "[Unit]"}]`), "Path "+unitDirectory+"a.service.d/a.conf: File -> File"),
		Entry("a file that becomes a drop-in with the same contents", file(unitDirectory+"a.service.d/a.conf", `contents: {source: "data:,%5BUnit%5D"}`),
			unit(`dropins: [{name: a.conf, contents: "[Unit]"}]`)),
		Entry("kernel arguments last", "{kernelArguments: [a]}", "{kernelArguments: [b], extensions: [e], config: {ignition: {version: 3.5.0}, storage: {files: [{path: /f}]}}}",
			"Path /f: not configured -> File", "OS: configured -> configured", "KernelArguments: configured -> configured"),
		Entry("nothing for another extensions image alone", "{baseOSExtensionsContainerImage: a}", "{baseOSExtensionsContainerImage: b}"),
	)

	It("put a hard link after what it leads to, also when they are undone", func() {
		linked := func(contents string) string {
			return withIgnition(`storage: {files: [{path: /f, contents: {source: "data:,` + contents + `"}}], links: [{path: /h, target: /f, hard: true}]}`)
		}
		undo := update.Undo(planOf(linked("a"), linked("b")).Operations)
		Expect(undo).To(HaveExactElements(HaveField("Name", "/f"), HaveField("Name", "/h")))
	})

	It("show no secrets in logs", func() {
		plan := planOf(user("passwordHash: swordfish"), withIgnition(`storage: {files: [{path: /f, contents: {source: "data:,swordfish"}}]}, passwd: {users: [{name: core, passwordHash: swordfish2}]}`))
		Expect(plan.Operations).To(HaveLen(2))
		Expect(fmt.Sprintf("%v %+v %s", plan.Operations, plan.Operations, plan.Operations[0].After)).NotTo(ContainSubstring("swordfish"))
	})

	It("are these for the example of the documentation", func() {
		plan := planOf(`{kernelArguments: [nosmt], config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/infratest, contents: {source: "data:,infra"}}]}}}`,
			`{kernelArguments: [nosmt, quiet], config: {ignition: {version: 3.5.0}, storage: {directories: [{path: /opt/data, mode: 0700}], links: [{path: /etc/localtime, target: /usr/share/zoneinfo/UTC}],
				files: [{path: /etc/infratest, mode: 0600, contents: {source: "data:,infra%20nodes"}}]},
				systemd: {units: [{name: a.service, enabled: true, contents: "[Unit]", dropins: [{name: 10-infra.conf, contents: "[Service]"}]}, {name: b.service, mask: true}]},
				passwd: {users: [{name: core, sshAuthorizedKeys: [k]}]}}}`)
		document, err := json.MarshalIndent(plan.Operations, "", "  ")
		Expect(err).NotTo(HaveOccurred())
		golden.Expect("operations.json", append(document, '\n'))
	})
})

// anyTree generates a rendered config in which paths are of several types.
func anyTree(random *rand.Rand) poolv1.MachineConfigSpec {
	files, units := []string{`"path":"/a"`, `"path":"/d/f"`, `"path":"/image/f"`}, []string{`"name":"b.service"`}
	storage := ""
	switch random.Intn(3) {
	case 0:
		storage = anyList(random, "directories", []string{`"path":"/d"`, `"path":"/a"`, `"path":"/d/e"`}, `"mode":493`, `"user":{"id":1}`)
		files = files[1:]
	case 1:
		storage = anyList(random, "links", []string{`"path":"/d"`, `"path":"/image/f"`}, `"target":"/x"`, `"target":"/y"`)
		files = files[:1]
	default:
		storage = anyList(random, "links", []string{`"path":"/h"`}, `"target":"/image/g","hard":true`)
	}
	if random.Intn(2) == 0 { // the files of a unit, in one of two ways
		files = append(files, `"path":"/etc/systemd/system/a.service"`, `"path":"/etc/systemd/system/a.service.d/1.conf"`)
	} else {
		units = append(units, `"name":"a.service"`)
	}
	s := rawSpec(fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{%s,%s},"systemd":{%s},"passwd":{%s,%s}}`, storage,
		anyList(random, "files", files, `"mode":384`, `"contents":{"source":"data:,x"}`, `"contents":{"source":"data:,y"},"user":{"name":"core"}`),
		anyList(random, "units", units, `"enabled":true`, `"enabled":false`, `"mask":true`, `"mask":false`, `"contents":"[Unit]"`,
			`"contents":"[Service]","enabled":true`, `"contents":"[Unit]","enabled":true`, `"dropins":[{"name":"1.conf","contents":"[Unit]"}]`),
		anyList(random, "users", []string{`"name":"core"`, `"name":"ops"`}, `"sshAuthorizedKeys":["k1"]`, `"shell":"/bin/sh"`),
		anyList(random, "groups", []string{`"name":"g"`}, `"passwordHash":"x"`)))
	s.KernelArguments, s.Extensions = []string{"a", "b"}[:random.Intn(3)], []string{"e"}[:random.Intn(2)]
	return s
}

// host is a model of a host. Its image has the files /image/f and /image/g, and masks b.service.
type host struct {
	paths, others map[string]string
	enabled       map[string]update.Enablement
}

// image returns a path of the image of the host.
func image(name string) string {
	switch name {
	case "/image/f", "/image/g":
		return "File image 600 core"
	case unitDirectory + "b.service":
		return "Link /dev/null"
	}
	return ""
}

// install returns a host that booted with a config, worked out entry by entry as Ignition does.
func install(config update.Config) *host {
	h := &host{paths: map[string]string{}, others: map[string]string{"kernel": fmt.Sprint(config.KernelArguments), "extensions": fmt.Sprint(config.OS.Extensions)}, enabled: map[string]update.Enablement{}}
	for _, name := range []string{"/image/f", "/image/g", unitDirectory + "b.service"} {
		h.paths[name] = image(name)
	}
	c := config.Ignition
	for _, directory := range c.Storage.Directories {
		h.paths[directory.Path] = fmt.Sprintf("Directory %v %v", ptr.Deref(directory.Mode, 0), ptr.Deref(directory.User.ID, 0))
	}
	for _, file := range c.Storage.Files {
		contents, mode, owner := "", "", ""
		if parts := strings.Fields(h.paths[file.Path]); len(parts) == 4 {
			contents, mode, owner = parts[1], parts[2], parts[3]
		}
		if source := file.Contents.Source; source != nil {
			contents, mode, owner = strings.TrimPrefix(*source, "data:,"), "420", "root"
		}
		if file.Mode != nil {
			mode = fmt.Sprint(*file.Mode)
		}
		if name := file.User.Name; name != nil {
			owner = *name
		}
		h.paths[file.Path] = fmt.Sprintf("File %s %s %s", contents, mode, owner)
	}
	for _, link := range c.Storage.Links {
		h.paths[link.Path] = "Link " + *link.Target
		if ptr.Deref(link.Hard, false) {
			h.paths[link.Path] = "HardLink " + h.paths[*link.Target]
		}
	}
	for _, unit := range c.Systemd.Units {
		for _, dropin := range unit.Dropins {
			h.paths[unitDirectory+unit.Name+".d/"+dropin.Name] = "File " + *dropin.Contents + " 420 root"
		}
		name := unitDirectory + unit.Name
		switch {
		case ptr.Deref(unit.Mask, false):
			h.paths[name] = "Link /dev/null"
		case unit.Contents != nil:
			h.paths[name] = "File " + *unit.Contents + " 420 root"
		case unit.Mask != nil && h.paths[name] == "Link /dev/null":
			delete(h.paths, name)
		}
		if unit.Enabled != nil && !ptr.Deref(unit.Mask, false) {
			h.enabled[unit.Name] = map[bool]update.Enablement{true: update.Enabled, false: update.Disabled}[*unit.Enabled]
		} else if ptr.Deref(unit.Mask, false) {
			h.enabled[unit.Name] = update.Disabled
		}
	}
	var lines []string
	for _, unit := range c.Systemd.Units {
		if unit.Enabled != nil {
			lines = append(lines, fmt.Sprintf("%s %s\n", unit.Name, map[bool]string{true: "enable", false: "disable"}[*unit.Enabled]))
		}
	}
	slices.Sort(lines)
	for i, line := range lines {
		name, verb, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines[i] = verb + " " + name + "\n"
	}
	if len(lines) > 0 {
		h.paths["/etc/systemd/system-preset/20-ignition.preset"] = "File " + strings.Join(lines, "") + " 420 root"
	}
	for _, user := range c.Passwd.Users {
		h.others["user "+user.Name] = ptr.Deref(user.Shell, "")
		if len(user.SSHAuthorizedKeys) > 0 {
			home := "~" + user.Name + "/.ssh"
			h.paths[home], h.paths[home+"/authorized_keys.d"] = "Directory 448 0", "Directory 448 0"
			h.paths[home+"/authorized_keys.d/ignition"] = fmt.Sprintf("File %s\n 384 ", user.SSHAuthorizedKeys[0])
		}
	}
	for _, group := range c.Passwd.Groups {
		h.others["group "+group.Name] = fmt.Sprint(ptr.Deref(group.PasswordHash, ""))
	}
	return h
}

// run applies operations to the host, as an executor does.
func (h *host) run(operations []update.Operation) {
	GinkgoHelper()
	for _, o := range operations {
		switch o.Kind {
		case update.ChangePath:
			h.setPath(o.Name, o.After.Path)
		case update.ChangeEnablement:
			h.enabled[o.Name] = o.After.Enablement
			if o.After.Enablement == update.Preset {
				delete(h.enabled, o.Name)
			}
			if o.After.Enablement == update.Enabled && image(unitDirectory+o.Name) == "" {
				Expect(h.paths[unitDirectory+o.Name]).NotTo(Equal("Link /dev/null"), "a masked unit can't be enabled")
			}
		case update.ChangeUser:
			delete(h.others, "user "+o.Name)
			if user := o.After.User; user != nil {
				h.others["user "+o.Name] = ptr.Deref(user.Shell, "")
				Expect(user.SSHAuthorizedKeys).To(BeEmpty(), "they are files")
			}
		case update.ChangeGroup:
			delete(h.others, "group "+o.Name)
			if group := o.After.Group; group != nil {
				h.others["group "+o.Name] = fmt.Sprint(ptr.Deref(group.PasswordHash, ""))
			}
		case update.ChangeKernelArguments:
			h.others["kernel"] = fmt.Sprint(o.After.KernelArguments)
		case update.ChangeOS:
			h.others["extensions"] = fmt.Sprint(o.After.OS.Extensions)
		}
	}
}

func (h *host) setPath(name string, state *hosttree.Entry) {
	GinkgoHelper()
	original := image(name)
	delete(h.paths, name)
	switch {
	case state == nil:
		if original != "" {
			h.paths[name] = original
		}
		return
	case state.Type == hosttree.Unmasked:
		if original != "" && original != "Link /dev/null" {
			h.paths[name] = original
		}
		return
	}
	Expect(h.paths[path.Dir(name)]).To(Or(BeEmpty(), HavePrefix("Directory ")), "the parent of "+name)
	if state.Type != hosttree.Directory {
		Expect(slices.Collect(maps.Keys(h.paths))).NotTo(ContainElement(HavePrefix(name+"/")), "it replaces a directory that is empty")
	}
	switch state.Type {
	case hosttree.Directory:
		h.paths[name] = fmt.Sprintf("Directory %v %v", ptr.Deref(state.Mode, 0), ptr.Deref(state.UID, 0))
	case hosttree.Link:
		h.paths[name] = "Link " + state.Target
	case hosttree.HardLink:
		h.paths[name] = "HardLink " + h.paths[state.Target]
	default:
		contents, mode, owner := "", "", ""
		if parts := strings.Fields(original); len(parts) == 4 {
			contents, mode, owner = parts[1], parts[2], parts[3]
		}
		if state.Contents != nil {
			contents = string(state.Contents)
		}
		if state.Sources != nil {
			contents = strings.TrimPrefix(*state.Sources[0].Source, "data:,")
		}
		if state.Mode != nil {
			mode = fmt.Sprint(*state.Mode)
		}
		if state.UID != nil {
			owner = "root"
		}
		if state.User != "" {
			owner = state.User
		}
		h.paths[name] = fmt.Sprintf("File %s %s %s", contents, mode, owner)
	}
}
