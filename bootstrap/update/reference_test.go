package update_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("A plan of any two configs", func() {
	It("has the actions of the reference", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 500 {
			before, after, policy := anySpec(random, false), anySpec(random, false), anyPolicy(random)
			plan := update.New(parse(before), parse(after), pool.NewUpdatePolicy(policy), update.AllCapabilities)
			Expect(plan.Obstacles).To(BeEmpty())
			Expect(describe(plan.Actions)).To(ConsistOf(referenceActions(before, after, policy)), "%s\n%s\n%v", before.Config.Raw, after.Config.Raw, policy)
		}
	})

	It("is impossible if the reference refuses a change of disks or FIPS, and possible if the reference allows everything", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		refused := 0
		for range 500 {
			before, after := anySpec(random, true), anySpec(random, true)
			plan := update.New(parse(before), parse(after), pool.NewUpdatePolicy(), update.AllCapabilities)
			isReconcilable := referenceReconciles(before, after)
			Expect(plan.IsPossible()).To(Equal(isReconcilable), "%s\n%s\n%v", before.Config.Raw, after.Config.Raw, plan.Obstacles)
			if !isReconcilable {
				refused++
			}
		}
		Expect(refused).To(BeNumerically(">", 50))
	})

	It("deletes all old and appends all new kernel arguments, as the reference", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 300 {
			before, after := anyArguments(random), anyArguments(random)
			plan := update.New(parse(poolv1.MachineConfigSpec{KernelArguments: before}), parse(poolv1.MachineConfigSpec{KernelArguments: after}), pool.NewUpdatePolicy(), update.AllCapabilities)
			deleted, appended := referenceArguments(before), referenceArguments(after)
			if slices.Equal(deleted, appended) {
				Expect(plan.Operations).To(BeEmpty())
				continue
			}
			Expect(plan.Operations).To(Equal([]update.Operation{{Kind: update.ChangeKernelArguments,
				Before: update.State{KernelArguments: deleted}, After: update.State{KernelArguments: appended}}}))
		}
	})
})

// choose returns one of several values.
func choose[T any](random *rand.Rand, values ...T) T { return values[random.Intn(len(values))] }

// anyList generates a JSON list with some of the entries that begin with keys, each with one of the fields.
func anyList(random *rand.Rand, name string, keys []string, fields ...string) string {
	var entries []string
	for _, key := range keys {
		if random.Intn(2) == 0 {
			entries = append(entries, fmt.Sprintf("{%s,%s}", key, choose(random, fields...)))
		}
	}
	random.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return fmt.Sprintf("%q:[%s]", name, strings.Join(entries, ","))
}

// anySpec generates a rendered config with what OpenShift can change on a running host, and with disks also what it
// can't.
func anySpec(random *rand.Rand, disks bool) poolv1.MachineConfigSpec {
	storage := anyList(random, "files", []string{`"path":"/etc/a"`, `"path":"/etc/a/b"`, `"path":"/etc/containers/policy.json"`, `"path":"/etc/crio/policies/x"`, `"path":"/var/x"`},
		`"mode":420`, `"mode":420`, `"mode":420`, `"mode":384`, `"contents":{"source":"data:,x"}`, `"contents":{"source":"data:,x","compression":""}`)
	if disks && random.Intn(2) == 0 {
		storage += "," + anyList(random, "disks", []string{`"device":"/dev/a"`, `"device":"/dev/b"`}, `"wipeTable":true`) +
			"," + anyList(random, "raid", []string{`"name":"md"`}, `"level":"raid1","devices":["/dev/c"]`) +
			"," + anyList(random, "filesystems", []string{`"device":"/dev/d"`}, `"format":"ext4"`, `"format":"xfs"`)
	}
	s := rawSpec(fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{%s},"systemd":{%s},"passwd":{%s}}`, storage,
		anyList(random, "units", []string{`"name":"a.service"`, `"name":"b.service"`}, `"enabled":true`, `"enabled":true`, `"mask":false`, `"contents":"[Unit]"`, `"dropins":[{"name":"1.conf","contents":"[Unit]"}]`),
		anyList(random, "users", []string{`"name":"core"`}, `"sshAuthorizedKeys":["k1"]`, `"sshAuthorizedKeys":["k2","k1"]`, `"passwordHash":"h"`)))
	if random.Intn(5) == 0 {
		s.KernelArguments, s.Extensions, s.KernelType = anyArguments(random), []string{"a", "b"}[:random.Intn(3)], choose(random, "", "default", "realtime")
	}
	if disks {
		fips := random.Intn(8) == 0
		s.FIPS = choose(random, &fips, nil)
	}
	return s
}

// anyPolicy generates a policy.
func anyPolicy(random *rand.Rand) (p poolv1.DisruptionPolicy) {
	actions := func() poolv1.DisruptionActions {
		return choose(random, poolv1.DisruptionActions{{Type: poolv1.ActionNone}}, poolv1.DisruptionActions{{Type: poolv1.ActionDrain}},
			poolv1.DisruptionActions{{Type: poolv1.ActionDaemonReload}, {Type: poolv1.ActionRestart, Unit: "a.service"}}, poolv1.DisruptionActions{{Type: poolv1.ActionReboot}})
	}
	for _, path := range []string{"/etc", "/etc/a", "/etc/a/b", "/etc/containers", "/etc/crio/policies", "/var", "/va"} {
		if random.Intn(2) == 0 {
			p.Files = append(p.Files, poolv1.PathDisruptionPolicy{Path: path, Actions: actions()})
		}
	}
	random.Shuffle(len(p.Files), func(i, j int) { p.Files[i], p.Files[j] = p.Files[j], p.Files[i] })
	for _, name := range []poolv1.UnitName{"a.service", "b.service", "c.service"} {
		if random.Intn(3) > 0 {
			p.Units = append(p.Units, poolv1.UnitDisruptionPolicy{Name: name, Actions: actions()})
		}
	}
	if random.Intn(2) == 0 {
		p.SSHKeys.Actions = actions()
	}
	return p
}

// anyArguments generates items with one or more kernel arguments.
func anyArguments(random *rand.Rand) []string {
	return []string{"quiet", "a=1 b=2", `c="x y" d`, "  e\t"}[random.Intn(3):][:random.Intn(2)+random.Intn(2)]
}

// document is the generic form of a JSON document.
type document = map[string]any

// generic returns the Ignition of a spec as generic JSON without empty lists.
func generic(s poolv1.MachineConfigSpec) (d document) {
	GinkgoHelper()
	Expect(json.Unmarshal(s.Config.Raw, &d)).To(Succeed())
	for _, section := range []string{"storage", "systemd", "passwd"} {
		if inner, ok := d[section].(document); ok {
			for name, value := range inner {
				if list, ok := value.([]any); ok && len(list) == 0 {
					delete(inner, name)
				}
			}
		}
	}
	return d
}

// listIn returns the entries of a list in a section.
func listIn(d document, section, name string) (entries []document) {
	inner, _ := d[section].(document)
	list, _ := inner[name].([]any)
	for _, entry := range list {
		entries = append(entries, entry.(document))
	}
	return entries
}

// referenceChanged returns the keys of the entries of a list that are only in one document or differ.
func referenceChanged(before, after document, section, name, key string) (keys []string) {
	from, to := listIn(before, section, name), listIn(after, section, name)
	for _, pair := range [][2][]document{{from, to}, {to, from}} {
		for _, entry := range pair[0] {
			isThere := slices.ContainsFunc(pair[1], func(other document) bool { return reflect.DeepEqual(entry, other) })
			if !isThere && !slices.Contains(keys, entry[key].(string)) {
				keys = append(keys, entry[key].(string))
			}
		}
	}
	return keys
}

// referencePolicies are the defaults, with their actions as text.
var referencePolicies = map[string][]string{
	"/etc/containers/policy.json": {"Reload crio.service"}, "/etc/crio/policies": {"Reload crio.service"},
}

// referenceActions decides as the Machine Config Operator does, but for units that go: by a loop over all policies for
// each change.
func referenceActions(before, after poolv1.MachineConfigSpec, policy poolv1.DisruptionPolicy) (actions []string) {
	kernel := func(s poolv1.MachineConfigSpec) string {
		if s.KernelType == "" {
			return "default"
		}
		return s.KernelType
	}
	if fmt.Sprintf("%q", before.KernelArguments) != fmt.Sprintf("%q", after.KernelArguments) || fmt.Sprint(before.Extensions) != fmt.Sprint(after.Extensions) || kernel(before) != kernel(after) {
		return []string{"Reboot"}
	}
	from, to := generic(before), generic(after)
	for _, path := range referenceChanged(from, to, "storage", "files", "path") {
		longest, found := "", []string{"Reboot"}
		consider := func(of string, actions []string) {
			if (path == of || strings.HasPrefix(path, of+"/")) && len(of) >= len(longest) {
				longest, found = of, actions
			}
		}
		for of, actions := range referencePolicies {
			consider(of, actions)
		}
		for _, file := range policy.Files {
			consider(file.Path, describe(pool.UpdateActions(file.Actions)))
		}
		actions = append(actions, found...)
	}
	for _, name := range referenceChanged(from, to, "systemd", "units", "name") {
		found := []string{"Reboot"}
		for _, unit := range policy.Units {
			if string(unit.Name) == name {
				found = describe(pool.UpdateActions(unit.Actions))
			}
		}
		actions = append(actions, found...)
	}
	if !reflect.DeepEqual(from["passwd"], to["passwd"]) {
		if len(policy.SSHKeys.Actions) == 0 {
			actions = append(actions, "None")
		}
		actions = append(actions, describe(pool.UpdateActions(policy.SSHKeys.Actions))...)
	}
	if slices.Contains(actions, "Reboot") {
		return []string{"Reboot"}
	}
	// Unlike the operator, the host stops a unit that goes instead of restarting it.
	says := func(config document, key string) any {
		for _, unit := range listIn(config, "systemd", "units") {
			if unit["name"] == "a.service" {
				return unit[key]
			}
		}
		return nil
	}
	goes := says(from, "contents") != nil && says(to, "contents") == nil || says(from, "enabled") != nil && says(to, "enabled") == nil
	var others []string
	for _, action := range actions {
		if action != "None" && (!goes || action != "Restart a.service") {
			others = append(others, action)
		}
	}
	if len(others) == 0 {
		return []string{"None"}
	}
	return others
}

// referenceReconciles compares the sections that the reference refuses to change, as a whole.
func referenceReconciles(before, after poolv1.MachineConfigSpec) bool {
	isFIPS := func(s poolv1.MachineConfigSpec) bool { return s.FIPS != nil && *s.FIPS }
	if isFIPS(before) != isFIPS(after) {
		return false
	}
	for _, section := range []string{"disks", "raid", "filesystems"} {
		if !reflect.DeepEqual(listIn(generic(before), "storage", section), listIn(generic(after), "storage", section)) {
			return false
		}
	}
	return true
}

// referenceArguments splits each item, character by character.
func referenceArguments(items []string) (arguments []string) {
	for _, item := range items {
		word, quoted := "", false
		for _, c := range item + " " {
			switch {
			case strings.ContainsRune(" \t\n", c) && !quoted:
				if word != "" {
					arguments = append(arguments, word)
				}
				word = ""
				continue
			case c == '"':
				quoted = !quoted
			}
			word += string(c)
		}
	}
	return arguments
}
