package agent

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/diskspace"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("Staging", func() {
	const address = "https://files.example/module.ko?signature=secret"

	// withURL returns a configuration whose file has contents at a URL.
	withURL := func(name, sum string) update.Config {
		config := withFiles(name, "")
		contents := &config.Ignition.Storage.Files[0].Contents
		contents.Source, contents.Verification.Hash = ptr.To(address), ptr.To(sum)
		return config
	}
	const sum = "sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc
	prefetch := func(images ...string) func(*assignment.Assignment) {
		return func(a *assignment.Assignment) {
			a.Staging = &assignment.Staging{BytesPerSecond: 1 << 20, Images: images}
		}
	}
	// next tells a host what comes next, and stores it.
	next := func(w *world, a assignment.Assignment) string {
		w.offered = w.put(a)
		w.node.Annotations[agentv1.NextAnnotation] = w.offered
		return w.offered
	}
	begin := func() *world {
		w := installed(withFiles())
		w.contents[address] = []byte("abc")
		w.steps = nil
		return w
	}
	hashOf := func(program []byte) string {
		sum := sha512.Sum512(program)
		return hex.EncodeToString(sum[:])
	}
	staging := func(w *world) string { return w.node.Annotations[agentv1.StagingAnnotation] }

	It("downloads files once, before the Node is drained: the update needs no server after that", func() {
		w := begin()
		w.drains = false
		second := w.offer(w.assign("rendered-b", withURL("/etc/drain/f", sum), prefetch("registry.example/a:1")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Draining " + second))
		Expect(w.steps).To(ContainElement("after pull registry.example/a:1"))
		w.drains = true
		w.pass(time.Second)
		w.fails["contents"], w.fails["pull registry.example/a:1"] = errors.New("no route to host"), errors.New("no route to host")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.fetched).To(Equal([]string{address}))
		Expect(w.read("etc/drain/f")).To(Equal("abc"))
		Expect(w.read("var/lib/poolboot/agent/contents/staged")).To(BeEmpty(), "nothing is left of it")
	})

	It("of a host that waits downloads everything and changes nothing, and its update needs no server", func() {
		w := begin()
		before, revision := w.snapshot(), w.node.Annotations[agentv1.DesiredAnnotation]
		Expect(staging(w)).To(Equal(revision))
		second := next(w, w.assign("rendered-b", withURL("/etc/drain/f", sum), prefetch("registry.example/a:1")))
		Expect(w.run()).To(Succeed())
		Expect(staging(w)).To(Equal(second))
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.limit).To(BeEquivalentTo(1 << 20))
		Expect(w.steps).To(ContainElement("after pull registry.example/a:1"))

		for _, server := range []string{"download", "contents", "pull registry.example/a:1"} {
			w.fails[server] = errors.New("no route to host")
		}
		delete(w.rendered, "rendered-b")
		delete(w.node.Annotations, agentv1.NextAnnotation)
		w.node.Annotations[agentv1.DesiredAnnotation] = second
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.read("etc/drain/f")).To(Equal("abc"))
	})

	It("waits for a moment, and reports no problem, while the config server sends the earlier assignment", func() {
		w := begin()
		earlier, revision := w.offered, staging(w)
		second := next(w, w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		w.offered = earlier
		a, stop := w.begin()
		defer stop()
		for range staleTries {
			_, err := a.Step(context.Background(), w.seen())
			Expect(err).NotTo(HaveOccurred())
			Expect(staging(w)).To(Equal(revision))
			w.pass(staleStaging)
		}
		w.offered = second
		_, err := a.Step(context.Background(), w.seen())
		Expect(err).NotTo(HaveOccurred())
		Expect(staging(w)).To(Equal(second))
	})

	It("downloads another program of the agent, and does not run it before the update", func() {
		w := begin()
		program := []byte("another program")
		w.program = &fakeProgram{version: "v0.1.0", sum: "running"}
		w.programs[hashOf(program)] = program
		second := next(w, w.assign("rendered-b", withFiles(), prefetch(), func(a *assignment.Assignment) {
			a.Agent = &assignment.Agent{Version: "v0.2.0", Oldest: "v0.1.0", SHA512: map[string]string{"amd64": hashOf(program)}}
		}))
		Expect(w.run()).To(Succeed())
		Expect(staging(w)).To(Equal(second))
		Expect(w.program.replaced).To(BeEmpty())
		Expect(w.programLimit).To(BeEquivalentTo(1 << 20))
		w.node.Annotations[agentv1.DesiredAnnotation] = second
		Expect(w.run()).To(MatchError(ErrReplaced))
		Expect(w.program.replaced).To(Equal(program))
		Expect(w.downloads).To(Equal(1))
	})

	DescribeTable("that fails changes nothing, is reported with the host of the URL and no secret, and is tried again",
		func(prepare func(w *world), correct func(w *world), want string) {
			w := begin()
			revision := w.node.Annotations[agentv1.DesiredAnnotation]
			prepare(w)
			second := next(w, w.assign("rendered-b", withURL("/etc/drain/f", sum), prefetch("registry.example/a:1")))
			Expect(w.run()).To(Succeed())
			Expect(staging(w)).To(HavePrefix(second + " "))
			Expect(staging(w)).To(And(ContainSubstring(want), Not(ContainSubstring("secret"))))
			Expect(w.state()).To(Equal("Done " + revision))
			Expect(len(w.fetched)).To(BeNumerically("<", 20), "each try comes later than the one before")
			correct(w)
			Expect(w.run()).To(Succeed())
			Expect(staging(w)).To(Equal(second))
		},
		Entry("a file with another hash", func(w *world) { w.contents[address] = []byte("abd") }, func(w *world) { w.contents[address] = []byte("abc") },
			"file /etc/drain/f: download from files.example: "),
		Entry("a server that does not answer", func(w *world) { w.fails["contents"] = context.DeadlineExceeded }, func(w *world) { delete(w.fails, "contents") },
			"file /etc/drain/f: download from files.example: context deadline exceeded"),
		Entry("a disk without room", func(w *world) { w.full.Store(diskspace.Reserve + 2) }, func(w *world) { w.full.Store(0) },
			"has 1073741826 bytes left, and needs 3 besides the 1073741824 that stay free: make room on the host"),
		Entry("an image that can't be pulled", func(w *world) { w.fails["pull registry.example/a:1"] = errors.New("exit status 1") },
			func(w *world) { delete(w.fails, "pull registry.example/a:1") }, "spec.updates.staging.prefetch: image registry.example/a:1: exit status 1"),
	)

	It("is nothing that a host needs room for which has just joined: what its configuration has is on it", func() {
		w := newWorld()
		w.contents[address] = []byte("abc")
		w.full.Store(diskspace.Reserve)
		w.write("etc/drain/f", "abc")
		revision := w.install(w.assign("rendered-a", withURL("/etc/drain/f", sum)))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
	})

	It("ends the download of an image before it fills the disk", func() {
		w := begin()
		second := next(w, w.assign("rendered-b", withFiles(), prefetch("registry.example/a:1")))
		w.full.Store(2 * diskspace.Reserve)
		w.during = map[string]func(context.Context) error{"pull registry.example/a:1": func(ctx context.Context) error {
			w.full.Store(diskspace.Reserve - 1)
			<-ctx.Done()
			return errors.New("signal: terminated")
		}}
		Expect(w.run()).To(Succeed())
		Expect(staging(w)).To(And(HavePrefix(second+" "), ContainSubstring("bytes left"), Not(ContainSubstring("signal"))))
	})

	It("of a host that has just started begins after the report: what it found does not wait for a download", func() {
		w := begin()
		w.program = &fakeProgram{version: "v0.1.0", sum: "running"}
		next(w, w.assign("rendered-b", withFiles(), prefetch("registry.example/a:1")))
		w.boot()
		isPulled := false
		w.during = map[string]func(context.Context) error{"pull registry.example/a:1": func(context.Context) error {
			isPulled = true
			Expect(w.node.Annotations).To(And(HaveKeyWithValue(agentv1.BootAnnotation, "boot-2"), HaveKeyWithValue(agentv1.AgentAnnotation, "v0.1.0")))
			return nil
		}}
		Expect(w.run()).To(Succeed())
		Expect(isPulled).To(BeTrue())
	})

	It("leaves nothing on the disk if nothing is next any more, also after a power failure at the end of an update", func() {
		w := begin()
		next(w, w.assign("rendered-b", withURL("/etc/drain/f", sum)))
		Expect(w.run()).To(Succeed())
		contents := func() []string {
			names, _ := filepath.Glob(filepath.Join(w.directory, "var/lib/poolboot/agent/contents/*"))
			return names
		}
		Expect(contents()).To(HaveLen(2))
		delete(w.node.Annotations, agentv1.NextAnnotation)
		Expect(w.run()).To(Succeed())
		Expect(contents()).To(BeEmpty())
		w.write("var/lib/poolboot/agent/contents/"+strings.Repeat("0", 64), "of an update that has ended")
		Expect(w.run()).To(Succeed())
		Expect(contents()).To(BeEmpty())
	})

	It("is complete only for the program that staged: another one can need more, and downloads that before the drain", func() {
		w := begin()
		program := []byte("another program")
		w.program = &fakeProgram{version: "v0.1.0", sum: "running"}
		w.programs[hashOf(program)] = program
		second := next(w, w.assign("rendered-b", withFiles(), prefetch("registry.example/a:1"), func(a *assignment.Assignment) {
			a.Agent = &assignment.Agent{Version: "v0.2.0", Oldest: "v0.1.0", SHA512: map[string]string{"amd64": hashOf(program)}}
		}))
		Expect(w.run()).To(Succeed())
		Expect(staging(w)).To(Equal(second))
		delete(w.node.Annotations, agentv1.NextAnnotation)
		w.node.Annotations[agentv1.DesiredAnnotation] = second
		Expect(w.run()).To(MatchError(ErrReplaced))
		w.program, w.steps = &fakeProgram{version: "v0.2.0", sum: hashOf(program)}, nil
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.steps).To(ContainElement("after pull registry.example/a:1"))
	})

	DescribeTable("that takes long is no silence: a Node that registers again gets the report of its host", func(isTold bool) {
		w := begin()
		w.meanwhile = time.Millisecond
		second := next(w, w.assign("rendered-b", withFiles(), prefetch("registry.example/a:1")))
		want := w.node.Annotations[agentv1.DesiredAnnotation]
		if isTold {
			delete(w.node.Annotations, agentv1.NextAnnotation)
			w.node.Annotations[agentv1.DesiredAnnotation] = second
			want = second + " " + agentv1.StagingDownloads
		}
		w.during = map[string]func(context.Context) error{"pull registry.example/a:1": func(ctx context.Context) error {
			reported := make(chan map[string]string, 10)
			w.annotated = func() { // by the reports meanwhile
				w.agent.See(w.seen())
				reported <- w.seen().Annotations
			}
			registered := w.seen()
			maps.DeleteFunc(registered.Annotations, func(name, _ string) bool { return slices.Contains(agentv1.Reports, name) })
			w.node.Annotations = maps.Clone(registered.Annotations)
			w.agent.See(registered)
			var got map[string]string
			Eventually(reported).Should(Receive(&got))
			Expect(got).To(And(HaveKeyWithValue(agentv1.StagingAnnotation, want), HaveKey(agentv1.CurrentAnnotation)))
			Expect(ctx.Err()).NotTo(HaveOccurred())
			return nil
		}}
		Expect(w.run()).To(Succeed())
		Expect(w.annotated).NotTo(BeNil(), "the image was pulled")
	},
		Entry("that waits", false),
		Entry("that was told to change", true),
	)

	DescribeTable("ends as soon as the host should have another revision", func(isTold bool) {
		w := begin()
		second := next(w, w.assign("rendered-b", withFiles(), prefetch("registry.example/a:1")))
		if isTold {
			w.node.Annotations[agentv1.DesiredAnnotation] = second
		}
		third := w.put(w.assign("rendered-c", withURL("/etc/drain/f", sum)))
		isStopped := false
		w.during = map[string]func(context.Context) error{"pull registry.example/a:1": func(ctx context.Context) error {
			w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = third, third
			delete(w.node.Annotations, agentv1.NextAnnotation)
			w.agent.See(w.seen())
			isStopped = ctx.Err() != nil
			return ctx.Err()
		}}
		Expect(w.run()).To(Succeed())
		Expect(isStopped).To(BeTrue())
		Expect(w.state()).To(Equal("Done " + third))
		Expect(strings.Contains(staging(w), second)).To(BeFalse())
	}, Entry("of a host that waits", false), Entry("of a host that was told to change", true))
})
