package agent

import (
	"errors"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = DescribeTable("An undo restores users although all its time is taken by", func(hangs func(update.Operation) bool) {
	usual := undoTimeout
	undoTimeout = 300 * time.Millisecond
	DeferCleanup(func() { undoTimeout = usual })
	a := withFiles("/etc/reload/f", "a")
	a.OS.Image, a.KernelArguments = "image:1", []string{"a"}
	b := withFiles("/etc/reload/f", "b")
	b.OS.Image, b.KernelArguments = "image:2", []string{"b"}
	b.Ignition.Passwd.Users = []types.PasswdUser{{Name: "app"}}
	w := installed(a)
	w.obstructs = func(operation update.Operation) error {
		if hangs(operation) {
			time.Sleep(undoTimeout)
			return errors.New("it does not answer")
		}
		return nil
	}
	w.isBroken = func() bool { return w.read("etc/reload/f") == "b" }
	w.offer(w.assign("rendered-b", b))
	_ = w.run()
	Expect(w.read("etc/reload/f")).To(Equal("a"))
	Expect(w.accounts).NotTo(HaveKey("app"), w.state()+" "+w.reason())
},
	Entry("the operating system", func(o update.Operation) bool {
		return o.Kind == update.ChangeOS && o.After.OS.Image == "image:1"
	}),
	Entry("kernel arguments", func(o update.Operation) bool {
		return o.Kind == update.ChangeKernelArguments && o.After.KernelArguments[0] == "a"
	}),
)
