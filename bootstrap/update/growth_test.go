package update_test

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// A user of one namespace chooses the entries, and the manager predicts each of their changes.
var _ = Describe("The cost of a plan", func() {
	configOf := func(entries string) update.Config {
		GinkgoHelper()
		config, err := ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},` + entries + `}`))
		Expect(err).NotTo(HaveOccurred())
		return update.Config{Ignition: config}
	}
	list := func(count int, item string, args ...any) string {
		items := make([]string, count)
		for i := range items {
			items[i] = fmt.Sprintf(strings.ReplaceAll(item, "#", "%[1]d"), append([]any{i}, args...)...)
		}
		return strings.Join(items, ",")
	}
	processorTime := func() time.Duration {
		var usage syscall.Rusage
		Expect(syscall.Getrusage(syscall.RUSAGE_SELF, &usage)).To(Succeed())
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	// cost returns the least processor time of several plans: others on the machine can only add to it.
	cost := func(before, after update.Config) time.Duration {
		least := time.Hour
		for range 2 {
			start := processorTime()
			update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
			least = min(least, processorTime()-start)
		}
		return max(least, 4*time.Millisecond) // less is what the garbage collector and the clock add
	}

	// Eight times as many entries cost about 8 times as much, and 64 times if entries are compared in pairs.
	DescribeTable("grows with the number of entries, and not with its square, for", func(section, key, item string) {
		const count = 500
		change := func(count int) time.Duration {
			of := func(what string) update.Config {
				return configOf(fmt.Sprintf(`"%s":{"%s":[%s]}`, section, key, list(count, item, what)))
			}
			return cost(of("a"), of("b"))
		}
		Expect(change(8*count).Seconds() / change(count).Seconds()).To(BeNumerically("<", 30))
	},
		Entry("units that name each other", "systemd", "units", `{"name":"a#.service","enabled":true,"contents":"[Unit]\nDescription=%[2]s\n[Install]\nAlso=a1#.service\n"}`),
		Entry("instances of a template", "systemd", "units", `{"name":"a@#.service","enabled":true,"contents":"[Unit]\nDescription=%[2]s\n[Install]\nWantedBy=multi-user.target\n"}`),
		Entry("units with drop-ins", "systemd", "units", `{"name":"a#.service","dropins":[{"name":"a.conf","contents":"[Unit]\nDescription=%[2]s\n"}]}`),
		Entry("files", "storage", "files", `{"path":"/opt/#","contents":{"source":"data:,%[2]s"}}`),
		Entry("files of units", "storage", "files", `{"path":"/etc/systemd/system/a#.service.d/a.conf","contents":{"source":"data:,%[2]s"}}`),
		Entry("files that move", "storage", "files", `{"path":"/opt/%[2]s#"}`),
		Entry("directories", "storage", "directories", `{"path":"/opt/%[2]s#"}`),
		Entry("users", "passwd", "users", `{"name":"a#","gecos":"%[2]s"}`),
		Entry("groups", "passwd", "groups", `{"name":"%[2]s#"}`),
	)
})
