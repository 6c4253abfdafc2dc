package accounts_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = DescribeTable("A change of what files of a host depend on is refused", func(newChange func(name, before, after string) update.Operation, name, after, why string) {
	operation := newChange(name, "", after)
	root := newImage()
	before := snapshot(root)
	refusal := executor(root).Refusal(context.Background(), operation)
	if why == "" {
		Expect(refusal).To(BeEmpty())
		Expect(applyAll(executor(root), context.Background(), []update.Operation{operation})).To(Succeed())
		undo := update.Undo([]update.Operation{operation})
		Expect(executor(root).Refusal(context.Background(), undo[0])).To(BeEmpty())
		return
	}
	Expect(refusal).To(And(ContainSubstring(why), ContainSubstring("replace the Machine")))
	Expect(snapshot(root)).To(Equal(before))
	By("refusing to return to the image, on a host that was installed with it")
	Expect(applyAll(executor(root), context.Background(), []update.Operation{operation})).To(Succeed())
	Expect(executor(root).Refusal(context.Background(), update.Undo([]update.Operation{operation})[0])).To(ContainSubstring("changes from "))
},
	Entry("the ID of a user of the image", userChange, "core", `{"uid": 2000}`, "the ID of user core changes from 1500 to 2000"),
	Entry("its home", userChange, "core", `{"homeDir": "/var/core"}`, "the home of user core changes from /home/core to /var/core"),
	Entry("its primary group", userChange, "core", `{"primaryGroup": "900"}`, "the primary group of user core changes from 1500 to 900"),
	Entry("the ID of a group of the image", groupChange, "staff-of-image", `{"gid": 4000}`, "the ID of group staff-of-image changes from 900 to 4000"),
	Entry("not the same ones", userChange, "core", `{"uid": 1500, "homeDir": "/home/core", "primaryGroup": "core"}`, ""),
	Entry("not a new user", userChange, "new", `{"uid": 2000, "homeDir": "/var/new"}`, ""),
	Entry("not a new group", groupChange, "new", `{"gid": 4000}`, ""),
	Entry("not other attributes", userChange, "core", `{"shell": "/bin/sh"}`, ""),
)
