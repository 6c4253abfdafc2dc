package accounts_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// object is a JSON object.
type object map[string]any

// newInstalledHost returns a host that Ignition installed.
func newInstalledHost(document []byte) string {
	GinkgoHelper()
	root := newImage()
	keepImage(root)
	bin, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(bin, "ignition")
	if _, err := os.Stat(program); err != nil {
		Skip(program + " does not exist: run make binaries")
	}
	state := GinkgoT().TempDir()
	config := filepath.Join(state, "config.ign")
	Expect(os.WriteFile(config, document, 0o600)).To(Succeed())
	for _, stage := range []string{"fetch", "files"} {
		cmd := exec.Command(program, "-platform", "file", "-stage", stage, "-root", root, "-log-to-stdout",
			"-config-cache", filepath.Join(state, "cache"), "-state-file", filepath.Join(state, "state"), "-neednet", filepath.Join(state, "neednet"))
		cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+config)
		output, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
	return root
}

// randomAccounts returns a document with users and groups of a small set, so that two documents have many in common.
func randomAccounts(chance *rand.Rand) []byte {
	GinkgoHelper()
	pick := func(n int) bool { return chance.IntN(n) == 0 }
	groups, users := []object{}, []object{}
	names := []string{"staff-of-image"}
	for id, name := range []string{"g0", "g1", "shared", "staff-of-image"} {
		if pick(3) {
			continue
		}
		group := object{"name": name}
		if name != "staff-of-image" {
			group["gid"] = 4000 + id
			names = append(names, name)
		}
		if pick(2) {
			group["passwordHash"] = []string{"$6$1", "$6$2"}[chance.IntN(2)]
		}
		groups = append(groups, group)
	}
	for id, name := range []string{"u0", "u1", "shared", "core"} {
		if pick(3) {
			continue
		}
		user := object{"name": name}
		if name != "core" {
			user["uid"] = 2000 + id
		}
		if name == "shared" {
			if !slices.Contains(names, "shared") {
				continue
			}
			user["primaryGroup"] = "shared"
		}
		if pick(2) {
			user["passwordHash"] = []string{"$6$1", "$6$2", ""}[chance.IntN(3)]
		}
		if pick(2) {
			user["gecos"] = []string{"one", "two words"}[chance.IntN(2)]
		}
		if pick(2) {
			user["shell"] = []string{"/bin/bash", "/usr/sbin/nologin"}[chance.IntN(2)]
		}
		if pick(2) {
			user["groups"] = names[chance.IntN(len(names)):]
		}
		if name == "u1" {
			user["noUserGroup"], user["primaryGroup"], user["noCreateHome"] = true, "staff-of-image", true
		}
		users = append(users, user)
	}
	document, err := json.Marshal(object{"ignition": object{"version": "3.5.0"}, "passwd": object{"users": users, "groups": groups}})
	Expect(err).NotTo(HaveOccurred())
	return document
}

func parse(document []byte) update.Config {
	GinkgoHelper()
	config, err := ignition.Parse(document)
	Expect(err).NotTo(HaveOccurred(), string(document))
	return update.Config{Ignition: config}
}

// withoutGroupIDs removes the IDs of groups that useradd chose: they depend on the order.
func withoutGroupIDs(lines []string) []string {
	result := slices.Clone(lines)
	for i, line := range result {
		fields := strings.Split(line, ":")
		switch {
		case strings.HasPrefix(line, "group u"):
			fields[2] = "any"
		case strings.HasPrefix(line, "passwd u0"):
			fields[3] = "any"
		}
		result[i] = strings.Join(fields, ":")
	}
	slices.Sort(result)
	return result
}

var _ = Describe("A host that follows any config of users and groups", func() {
	It("has the same ones as one that is installed with it, and those that it had if it returns", func() {
		chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		for done := 0; done < 8; {
			from, to := randomAccounts(chance), randomAccounts(chance)
			plan := update.New(parse(from), parse(to), update.DefaultPolicy(), update.AllCapabilities)
			if !plan.IsPossible() {
				continue
			}
			done++
			operations := slices.DeleteFunc(plan.Operations, func(o update.Operation) bool { return o.Kind != update.ChangeUser && o.Kind != update.ChangeGroup })
			root, fresh := newInstalledHost(from), newInstalledHost(to)
			installed := snapshot(root)
			e := executor(root)
			Expect(e.Prepare(context.Background(), operations)).To(Succeed())
			for range 2 {
				for _, operation := range operations {
					Expect(applyAll(e, context.Background(), []update.Operation{operation})).To(Succeed(), "from %s\nto %s\n%v", from, to, operations)
				}
				Expect(withoutGroupIDs(snapshot(root))).To(Equal(withoutGroupIDs(snapshot(fresh))), "from %s\nto %s\n%v", from, to, operations)
			}
			for range 2 {
				Expect(applyAll(e, context.Background(), update.Undo(operations))).To(Succeed())
				Expect(snapshot(root)).To(Equal(installed), "from %s\nto %s and back\n%v", from, to, operations)
			}
		}
	})
})
