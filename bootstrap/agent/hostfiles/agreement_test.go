package hostfiles

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// randomConfig returns a configuration with SSH keys, and with entries that a later entry for the same path hides.
func randomConfig(chance *rand.Rand) ignition.Config {
	GinkgoHelper()
	config, err := ignition.Parse(randomDocument(chance))
	Expect(err).NotTo(HaveOccurred())
	for i := range config.Storage.Files {
		config.Storage.Files[i].Append = nil // no plan changes it
	}
	if keys := chance.IntN(3); keys > 0 {
		config.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{types.SSHAuthorizedKey(fmt.Sprint(keys))}}}
	}
	for _, hidden := range []string{"/etc/systemd/system/a.service", "/etc/systemd/system//a.service.d/10.conf", "/etc/l0"} {
		if chance.IntN(2) == 0 {
			continue
		}
		config.Storage.Files = append(config.Storage.Files, types.File{
			Node:          types.Node{Path: hidden},
			FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: ptr.To(fmt.Sprintf("data:,%d", chance.IntN(2)))}},
		})
	}
	return config
}

// planned returns what a plan writes to a host by path, nil for what it removes.
func planned(operations []update.Operation, host hosttree.System) map[string]*hosttree.Entry {
	GinkgoHelper()
	written, removed := hosttree.Tree{}, hosttree.Tree{}
	for _, o := range operations {
		switch {
		case o.Kind != update.ChangePath:
		case o.After.Path == nil:
			removed[o.Name] = *o.Before.Path
		default:
			written[o.Name] = *o.After.Path
		}
	}
	paths := map[string]*hosttree.Entry{}
	removed, err := removed.On(host)
	Expect(err).NotTo(HaveOccurred())
	for name := range removed {
		paths[name] = nil
	}
	written, err = written.On(host)
	Expect(err).NotTo(HaveOccurred())
	for name, entry := range written {
		entry.Replaces = false // this matters only for what Ignition wrote
		paths[name] = &entry
	}
	return paths
}

var _ = Describe("The plan of an update", func() {
	It("names exactly what changes on a host", func() {
		chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 2))
		changed := 0
		for range 10 {
			root := newPlainHost()
			host, u := hostOf(root), open(root)
			config := ignition.New()
			for range 5 {
				next := randomConfig(chance)
				plan := update.New(update.Config{Ignition: config}, update.Config{Ignition: next}, update.DefaultPolicy(), update.AllCapabilities)
				Expect(plan.Obstacles).To(BeEmpty())
				want := planned(plan.Operations, host)

				nextTree, err := hosttree.New(next).On(host)
				Expect(err).NotTo(HaveOccurred())
				changes, err := u.ChangesTo(nextTree)
				Expect(err).NotTo(HaveOccurred())
				got := map[string]*hosttree.Entry{}
				for _, change := range changes {
					if change.To != nil {
						change.To.Replaces = false
					}
					got[change.Path] = change.To
				}
				Expect(slices.Sorted(maps.Keys(got))).To(Equal(slices.Sorted(maps.Keys(want))))
				Expect(got).To(Equal(want))

				before := snapshot(root)
				Expect(u.Apply(changes, false)).To(Succeed())
				Expect(u.Confirm()).To(Succeed())
				after := snapshot(root)
				for _, name := range slices.Sorted(maps.Keys(merge(before, after))) {
					if withoutLinks(before[name]) != withoutLinks(after[name]) {
						changed++
						Expect(hasPathBelow(want, "/"+name)).To(BeTrue(), "%s changed from %q to %q, and the plan has %v", name, before[name], after[name], slices.Sorted(maps.Keys(want)))
					}
				}
				Expect(u.Differences()).To(BeEmpty())
				fresh := newPlainHost()
				apply(open(fresh), nil, nextTree)
				Expect(differing(after, snapshot(fresh))).To(BeEmpty(), "what the plan leaves out is as on a host that was installed with the new configuration")
				config = next
			}
		}
		Expect(changed).To(BeNumerically(">", 100))
	})
})

// merge returns all keys of two snapshots.
func merge(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// withoutLinks returns the text of a path in a snapshot without its hard links.
func withoutLinks(text string) string {
	text, _, _ = strings.Cut(text, " = ")
	return text
}

// hasPathBelow reports whether a plan has a path or something below it, for which its parents are created and removed.
func hasPathBelow(plan map[string]*hosttree.Entry, name string) bool {
	for planned := range plan {
		if planned == name || strings.HasPrefix(planned, name+"/") {
			return true
		}
	}
	return false
}
