package accounts_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/accounts"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("Users and groups of a running host", func() {
	var root string

	BeforeEach(func() { root = newImage() })

	apply := func(operations ...update.Operation) {
		GinkgoHelper()
		Expect(applyAll(executor(root), context.Background(), operations)).To(Succeed())
	}

	It("are created as Ignition does, repeated, and removed again without the files of the user", func() {
		before := snapshot(root)
		operations := []update.Operation{
			groupChange("g", "", `{"gid": 4000, "passwordHash": "$6$group"}`),
			userChange("new", "", `{"uid": 2000, "gecos": "A new user", "groups": ["staff-of-image", "g"], "shell": "/bin/bash", "passwordHash": "$6$new"}`),
			userChange("plain", "", `{}`),
		}
		for range 2 {
			apply(operations...)
			Expect(line(root, "passwd", "new")).To(Equal("new:x:2000:2000:A new user:/home/new:/bin/bash"))
			Expect(line(root, "shadow", "new")).To(Equal("new:$6$new"))
			Expect(line(root, "shadow", "plain")).To(Equal("plain:*"))
			Expect(line(root, "group", "g")).To(Equal("g:x:4000:new"))
			Expect(line(root, "gshadow", "g")).To(Equal("g:$6$group::new"))
			Expect(line(root, "group", "staff-of-image")).To(Equal("staff-of-image:x:900:core,new"))
		}
		for range 2 {
			apply(update.Undo(operations)...)
			Expect(snapshot(root)).To(Equal(before))
		}
		Expect(filepath.Join(root, "home/new/.bashrc")).To(BeAnExistingFile())
	})

	It("of the image get back what they had, and are never removed", func() {
		run(root, "groupadd", "--system", "sshd-keys")
		before := snapshot(root)
		operations := []update.Operation{
			groupChange("staff-of-image", "", `{"passwordHash": "$6$group"}`),
			userChange("core", "", `{"gecos": "Of the pool", "groups": ["sshd-keys"], "shell": "/bin/sh", "passwordHash": "$6$pool"}`),
		}
		apply(operations...)
		Expect(line(root, "passwd", "core")).To(Equal("core:x:1500:1500:Of the pool:/home/core:/bin/sh"))
		Expect(line(root, "shadow", "core")).To(Equal("core:$6$pool"))
		Expect(line(root, "group", "staff-of-image")).To(HaveSuffix(":900:"))
		apply(update.Undo(operations)...)
		Expect(snapshot(root)).To(Equal(before))
	})

	It("are undone after each part of the operations, also if the undoing is repeated", func() {
		before := snapshot(root)
		operations := []update.Operation{
			groupChange("g", "", `{}`),
			userChange("core", "", `{"groups": ["g"], "passwordHash": "$6$pool"}`),
			userChange("new", "", `{"primaryGroup": "g"}`),
		}
		for done := range len(operations) + 1 {
			Expect(executor(root).Prepare(context.Background(), operations)).To(Succeed())
			for _, operation := range operations[:done] {
				apply(operation)
			}
			undo := update.Undo(operations)
			apply(undo[:1]...)
			apply(undo...)
			Expect(snapshot(root)).To(Equal(before))
		}
	})

	It("keep what the configuration does not mention", func() {
		apply(userChange("core", "", `{"passwordHash": "$6$pool"}`))
		run(root, "usermod", "--shell", "/bin/sh", "core")
		apply(userChange("core", `{"passwordHash": "$6$pool"}`, `{"passwordHash": "$6$other"}`))
		Expect(line(root, "passwd", "core")).To(Equal("core:x:1500:1500:Of the image:/home/core:/bin/sh"))
		Expect(line(root, "shadow", "core")).To(Equal("core:$6$other"))
	})

	It("have the password with which nobody can log in if the hash is empty or not configured any more", func() {
		apply(userChange("new", "", `{"passwordHash": "$6$new"}`))
		apply(userChange("new", `{"passwordHash": "$6$new"}`, `{"passwordHash": ""}`))
		Expect(line(root, "shadow", "new")).To(Equal("new:*"))
		apply(userChange("new", `{"passwordHash": ""}`, `{"passwordHash": "$6$new"}`))
		apply(userChange("new", `{"passwordHash": "$6$new"}`, `{}`))
		Expect(line(root, "shadow", "new")).To(Equal("new:*"))
	})

	It("that are removed and return have the same IDs, because files have them", func() {
		apply(groupChange("g", "", `{}`), groupChange("h", "", `{}`), userChange("a", "", `{}`), userChange("b", "", `{}`))
		before := snapshot(root)
		remove := []update.Operation{userChange("a", `{}`, ""), userChange("b", `{}`, ""), groupChange("g", `{}`, ""), groupChange("h", `{}`, "")}
		apply(remove...)
		apply(update.Undo(remove)...)
		Expect(snapshot(root)).To(Equal(before))
	})

	It("that are removed and return have other IDs if others got theirs", func() {
		apply(groupChange("g", "", `{}`), userChange("a", "", `{}`))
		apply(userChange("a", `{}`, ""), groupChange("g", `{}`, ""))
		apply(groupChange("h", "", `{}`), userChange("b", "", `{}`))
		apply(groupChange("g", "", `{}`), userChange("a", "", `{}`))
		ids := map[string]bool{}
		for _, name := range []string{"a", "b"} {
			Expect(line(root, "passwd", name)).NotTo(BeEmpty())
			ids[strings.Split(line(root, "passwd", name), ":")[2]] = true
		}
		Expect(ids).To(HaveLen(2))
		Expect(line(root, "group", "g")).NotTo(BeEmpty())
		Expect(line(root, "group", "a")).NotTo(BeEmpty())
	})

	It("keep a group with the name of a user that is removed, if the user did not come with it", func() {
		apply(groupChange("x", "", `{"gid": 4000}`), userChange("x", "", `{"primaryGroup": "x"}`))
		apply(userChange("x", `{"primaryGroup": "x"}`, ""))
		Expect(line(root, "passwd", "x")).To(BeEmpty())
		Expect(line(root, "group", "x")).To(Equal("x:x:4000:"))
	})

	It("are removed if Ignition created them, as the image says", func() {
		keepImage(root)
		run(root, "groupadd", "g")
		run(root, "useradd", "--groups", "g", "--password", "$6$new", "new")
		run(root, "usermod", "--password", "$6$pool", "--shell", "/bin/sh", "core")
		apply(userChange("core", `{"passwordHash": "$6$pool", "shell": "/bin/sh"}`, ""), userChange("new", `{"groups": ["g"]}`, ""), groupChange("g", `{}`, ""))
		Expect(line(root, "passwd", "core")).To(HaveSuffix(":/bin/bash"))
		Expect(line(root, "shadow", "core")).To(Equal("core:$6$image"))
		Expect(line(root, "passwd", "new") + line(root, "group", "new") + line(root, "group", "g")).To(BeEmpty())
	})

	It("stay without a password if nothing tells whether Ignition created them", func() {
		run(root, "groupadd", "g")
		run(root, "usermod", "--password", "$6$pool", "--groups", "g", "core")
		apply(userChange("core", `{"passwordHash": "$6$pool"}`, ""), groupChange("g", `{}`, ""))
		Expect(line(root, "passwd", "core")).NotTo(BeEmpty())
		Expect(line(root, "shadow", "core")).To(Equal("core:*"))
		Expect(line(root, "group", "g")).NotTo(BeEmpty())
	})

	It("are created completely after useradd was interrupted", func() {
		create := userChange("new", "", `{"passwordHash": "$6$new"}`)
		interruptUseradd(root, `echo "new:x:1501:1501::/home/new:/bin/sh" >>/etc/passwd && mkdir /home/new`, create)
		apply(create)
		Expect(line(root, "shadow", "new")).To(Equal("new:$6$new"))
		Expect(line(root, "group", "new")).NotTo(BeEmpty())
		Expect(run(root, "stat", "--format=%U", "/home/new")).To(Equal("new\n"))
		run(root, "pwck", "--read-only", "--quiet")
	})

	It("don't get an existing directory that is configured as their home, also if useradd was interrupted, and the undo leaves it as it is", func() {
		before := run(root, "stat", "--format=%U:%G %a", "/opt")
		Expect(before).To(HavePrefix("root:root "))
		create := userChange("new", "", `{"homeDir": "/opt"}`)
		apply(create)
		Expect(run(root, "stat", "--format=%U:%G %a", "/opt")).To(Equal(before))
		apply(update.Undo([]update.Operation{create})...)
		Expect(run(root, "stat", "--format=%U:%G %a", "/opt")).To(Equal(before))

		By("interrupting useradd")
		interruptUseradd(root, `useradd.real "$@"`, create)
		apply(create)
		Expect(run(root, "stat", "--format=%U:%G %a", "/opt")).To(Equal(before))
	})

	It("never have their hashes in arguments of programs or in errors", func() {
		log := filepath.Join(root, "arguments")
		for _, name := range []string{"useradd", "usermod", "chpasswd", "groupadd", "chgpasswd"} {
			program := filepath.Join(root, "usr/sbin", name)
			Expect(os.Rename(program, program+".real")).To(Succeed())
			Expect(os.WriteFile(program, []byte("#!/bin/sh\necho \"$0 $*\" >>/arguments\nexec "+strings.TrimPrefix(program, root)+".real \"$@\"\n"), 0o755)).To(Succeed())
		}
		apply(groupChange("g", "", `{"passwordHash": "$6$secret"}`), userChange("new", "", `{"passwordHash": "$6$secret"}`), userChange("core", "", `{"passwordHash": "$6$secret"}`))
		Expect(os.ReadFile(log)).To(And(ContainSubstring("chpasswd"), ContainSubstring("chgpasswd"), Not(ContainSubstring("secret"))))
		for _, hash := range []string{`secret\nroot:x`, `secret:x`} {
			err := applyAll(executor(root), context.Background(), []update.Operation{userChange("bad", "", `{"passwordHash": "`+hash+`"}`)})
			Expect(err).To(MatchError(And(HavePrefix("user bad: passwordHash has a colon"), Not(ContainSubstring("secret")))))
		}
		Expect(line(root, "shadow", "root")).To(Equal("root:*"))
	})

	It("are an error that names the user or group if they can't be changed", func() {
		err := applyAll(executor(root), context.Background(), []update.Operation{userChange("new", "", `{"groups": ["none"]}`)})
		Expect(command.Detail(err)).To(And(HavePrefix("user new: usermod"), ContainSubstring("group 'none' does not exist")))
		err = applyAll(executor(root), context.Background(), []update.Operation{groupChange("g", "", `{"gid": 900}`)})
		Expect(command.Detail(err)).To(And(HavePrefix("group g: groupadd"), ContainSubstring("900")))
	})

	It("have a record of what they were that only root can read", func() {
		apply(userChange("core", "", `{"passwordHash": "$6$pool"}`))
		info, err := os.Stat(filepath.Join(root, accounts.RecordPath))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
		Expect(os.WriteFile(filepath.Join(root, accounts.RecordPath), []byte("{"), 0o600)).To(Succeed())
		Expect(executor(root).Prepare(context.Background(), nil)).To(MatchError(ContainSubstring(accounts.RecordPath)))
	})
})

// interruptUseradd carries out an operation with a useradd that does only a part of its work, and fails.
func interruptUseradd(root, part string, operation update.Operation) {
	GinkgoHelper()
	useradd := filepath.Join(root, "usr/sbin/useradd")
	Expect(os.Rename(useradd, useradd+".real")).To(Succeed())
	Expect(os.WriteFile(useradd, []byte("#!/bin/sh\nif [ \"$1\" = --defaults ]; then exec useradd.real \"$@\"; fi\n"+part+"\nexit 1\n"), 0o755)).To(Succeed())
	Expect(applyAll(executor(root), context.Background(), []update.Operation{operation})).NotTo(Succeed())
	Expect(line(root, "passwd", operation.Name)).NotTo(BeEmpty())
	Expect(os.Rename(useradd+".real", useradd)).To(Succeed())
}
