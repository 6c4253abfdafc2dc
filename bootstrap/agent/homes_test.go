package agent

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = DescribeTable("A file where the SSH keys of a user are is the same after an update as on a new host", func(before, after string) {
	host := hosttree.System{Accounts: hosttree.ParseAccounts([]byte("core:x:1000:1000::/home/core:/bin/sh\n"), nil)}
	parse := func(document string) update.Config {
		config, err := ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},` + document + `}`))
		Expect(err).NotTo(HaveOccurred())
		return update.Config{Ignition: config}
	}
	from, to := parse(before), parse(after)
	plan := update.New(from, to, update.DefaultPolicy(), update.AllCapabilities)
	Expect(plan.Obstacles).To(BeEmpty())
	tree, err := hosttree.New(from.Ignition).On(host)
	Expect(err).NotTo(HaveOccurred())
	fresh, err := hosttree.New(to.Ignition).On(host)
	Expect(err).NotTo(HaveOccurred())
	changes, err := pathChanges(plan.Operations, hosttree.New(to.Ignition), host)
	Expect(err).NotTo(HaveOccurred())
	for _, change := range changes {
		delete(tree, change.Path)
		if change.To != nil {
			tree[change.Path] = *change.To
		}
	}
	const file = "/home/core/.ssh/authorized_keys.d/ignition"
	Expect(string(tree[file].Contents)).To(Equal(string(fresh[file].Contents)))
	Expect(tree).To(HaveLen(len(fresh)))
},
	Entry("if only the keys change", keysAnd("1", "file"), keysAnd("2", "file")),
	Entry("if the keys are removed", keysAnd("1", "file"), keysAnd("", "file")),
	Entry("if the file is removed", keysAnd("1", "file"), keysAnd("1", "")),
	Entry("if the file is added", keysAnd("1", ""), keysAnd("1", "file")),
	Entry("if both change", keysAnd("1", "file"), keysAnd("2", "other")),
	Entry("if both are removed", keysAnd("1", "file"), keysAnd("", "")),
	Entry("if the file replaces the keys", keysAnd("1", ""), keysAnd("", "file")),
)

var _ = Describe("SSH keys of a user that were changed by hand", func() {
	const file = "home/core/.ssh/authorized_keys.d/ignition"

	It("are repaired, also if nothing else differs", func() {
		config := withFiles("/etc/none/f", "a")
		config.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"key"}}}
		w := installed(config, repairs)
		before := w.read(file)
		w.write(file, "by hand")
		Expect(w.run()).To(Succeed())
		Expect(w.read(file)).To(Equal(before))
		Expect(w.state()).To(HavePrefix("Done "))
	})
})

// keysAnd returns the sections of a document with a key of a user and with a file where such keys are, each unless it
// is empty.
func keysAnd(key, contents string) string {
	users, files := `[]`, `[]`
	if key != "" {
		users = `[{"name":"core","sshAuthorizedKeys":["` + key + `"]}]`
	}
	if contents != "" {
		files = `[{"path":"/home/core/.ssh/authorized_keys.d/ignition","overwrite":true,"contents":{"source":"data:,` + contents + `"}}]`
	}
	return `"passwd":{"users":` + users + `},"storage":{"files":` + files + `}`
}
