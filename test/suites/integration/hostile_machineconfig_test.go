package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// aliasBomb is a few lines of YAML that expand to billions of items.
var aliasBomb = func() string {
	text := "    - &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
	for letter := 'b'; letter < 'k'; letter++ {
		text += fmt.Sprintf("    - &%c [%s*%c]\n", letter, strings.Repeat(fmt.Sprintf("*%c, ", letter-1), 8), letter-1)
	}
	return text
}()

// nestJSON returns JSON with nested objects, and a value in the innermost one.
func nestJSON(levels int, innermost string) string {
	return strings.Repeat(`{"a":`, levels) + innermost + strings.Repeat("}", levels)
}

// postMachineConfig creates a MachineConfig with a raw spec, without client-side checks.
func postMachineConfig(ctx context.Context, namespace, spec string) (code int, answer string) {
	GinkgoHelper()
	web, err := rest.HTTPClientFor(lab.Management.Config)
	Expect(err).NotTo(HaveOccurred())
	body := `{"apiVersion":"poolboot.io/v1alpha1","kind":"MachineConfig","metadata":{"name":"hostile","labels":{"role":"infra"}},"spec":` + spec + `}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/apis/%s/namespaces/%s/machineconfigs", lab.Management.Config.Host,
		poolv1.GroupVersion, namespace), strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	response, err := web.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(text)
}

var _ = Describe("Hostile MachineConfigs", Ordered, ContinueOnFailure, func() {
	var t *tenant.Tenant
	BeforeAll(func(ctx SpecContext) { t = tenant.New(ctx, lab, 0) })

	// The manager still works and has not crashed.
	AfterEach(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(lab.ManagementClient.Delete(ctx, t.MachineConfig("hostile", "", "", "")))).To(Succeed())
		Eventually(ctx, getPoolCondition(t.Pool("infra"), poolv1.DegradedCondition)).Should(HavePrefix("False"))
		log, err := lab.Manager.Log()
		Expect(err).NotTo(HaveOccurred())
		Expect(log).NotTo(Or(ContainSubstring("panic"), ContainSubstring("stack overflow")))
	})

	butane := func(body string) string {
		return fmt.Sprintf(`{"butane":%q}`, "variant: fcos\nversion: 1.5.0\n"+body)
	}
	ignition := func(rest string) string { return `{"config":{"ignition":{"version":"3.4.0"},` + rest + `}}` }

	huge := func(bytes int) string {
		return ignition(`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,` + strings.Repeat("x", bytes) + `"}}]}`)
	}

	DescribeTable("are refused with a reason",
		func(ctx SpecContext, spec func() string, code int, message string) {
			got, answer := postMachineConfig(ctx, t.Namespace, spec())
			Expect(got).To(Equal(code), answer[:min(len(answer), 500)])
			Expect(answer).To(ContainSubstring(message))
		},
		Entry("1.6 MiB: more than etcd accepts", func() string { return huge(16 << 20 / 10) }, http.StatusUnprocessableEntity, "spec.config: Too long"),
		Entry("2 MiB: more than the API server sends to etcd", func() string { return huge(2 << 20) }, http.StatusUnprocessableEntity, "spec.config: Too long"),
		Entry("4 MiB: more than the API server accepts", func() string { return huge(4 << 20) }, http.StatusRequestEntityTooLarge, "limit is 3145728"),
		Entry("JSON nested 100,000 levels deep", func() string { return ignition(`"a":` + nestJSON(100_000, "1")) }, http.StatusBadRequest, "max depth"),
		Entry("an unknown field with content, nested 5,000 levels deep", func() string { return ignition(`"a":` + nestJSON(5_000, "1")) },
			http.StatusUnprocessableEntity, "Ignition 3.4.0 does not have this key, and would ignore it with its content"),
		Entry("nested objects in a list of Ignition", func() string { return ignition(`"storage":{"files":[` + nestJSON(5_000, "1") + `]}`) },
			http.StatusUnprocessableEntity, "storage.files"),
		Entry("Butane whose aliases expand to billions of items", func() string { return butane("storage:\n  files:\n" + aliasBomb) },
			http.StatusUnprocessableEntity, "spec.butane"),
		Entry("Butane with an anchor that contains itself", func() string { return butane("storage: &a {files: [*a]}\n") },
			http.StatusUnprocessableEntity, "spec.butane"),
		Entry("Butane nested 20,000 levels deep", func() string { return butane("x: " + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)) },
			http.StatusUnprocessableEntity, "max depth"),
		Entry("Butane of 1.5 MiB", func() string { return butane("#" + strings.Repeat("x", 3<<19)) }, http.StatusUnprocessableEntity, "spec.butane"),
		Entry("a path with a NUL character", func() string { return ignition(`"storage":{"files":[{"path":"/etc/a\u0000b"}]}`) },
			http.StatusUnprocessableEntity, "storage.files[0].path"),
		Entry("contents of a unit that can't be unpacked", func() string {
			return ignition(`"storage":{"files":[{"path":"/etc/systemd/system/a.service","contents":{"compression":"gzip","source":"data:;base64,!!"}}]}`)
		}, http.StatusUnprocessableEntity, "storage.files[0].contents"),
		Entry("a list in place of the spec", func() string { return `[]` }, http.StatusUnprocessableEntity, "must be of type object"),
	)

	It("with unknown fields without content are accepted, and rendered without these fields", func(ctx SpecContext) {
		pool := t.Pool("infra")
		code, answer := postMachineConfig(ctx, t.Namespace, ignition(`"a":`+nestJSON(5_000, "null")))
		Expect(code).To(Equal(http.StatusCreated), answer[:min(len(answer), 500)])
		Eventually(ctx, getSources(pool)).Should(Equal([]string{"00-worker", "51-infra", "hostile"}))
		rendered := &poolv1.MachineConfig{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: pool.Status.Configuration.Name}, rendered)).To(Succeed())
		Expect(string(rendered.Spec.Config.Raw)).NotTo(ContainSubstring(`{"a":`))
	})
})

var _ = Describe("A pool of a thousand MachineConfigs", func() {
	It("is rendered completely, with fewer writes than MachineConfigs, and one status for each", func(ctx SpecContext) {
		const n = 998 // with the MachineConfigs of worker and infra, the maximum of a pool
		t := tenant.New(ctx, lab, 0)
		pool := t.Pool("infra")
		Eventually(ctx, getSources(pool)).Should(HaveLen(2))
		var created atomic.Int64
		creators, creatorsCtx := errgroup.WithContext(ctx)
		for range 4 {
			creators.Go(func() error {
				for i := created.Add(1); i <= n; i = created.Add(1) {
					name := fmt.Sprintf("60-%04d", i)
					config := t.MachineConfig(name, "infra", "/etc/many/"+name, name)
					if err := lab.ManagementClient.Create(creatorsCtx, config); err != nil {
						return err
					}
				}
				return nil
			})
		}
		Expect(creators.Wait()).To(Succeed())
		applied := time.Now()
		Eventually(ctx, getSources(pool)).Should(HaveLen(n + 2))
		rendered := &poolv1.MachineConfig{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: pool.Status.Configuration.Name}, rendered)).To(Succeed())
		Expect(strings.Count(string(rendered.Spec.Config.Raw), "/etc/many/60-")).To(Equal(n))

		writes, statuses, requests := 0, map[string]int{}, must(lab.Management.Requests())
		for _, r := range requests {
			if r.Object.Namespace == t.Namespace && r.Object.APIGroup == poolv1.GroupVersion.Group && strings.HasSuffix(r.User.Name, ":poolboot-manager") &&
				r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
				switch {
				case r.Object.Resource != "machineconfigs" || r.Object.Subresource != "status":
					writes++
				case strings.HasPrefix(r.Object.Name, "60-"): // the others existed before the pools, which their status names
					statuses[r.Object.Name]++
				}
			}
		}
		AddReportEntry(fmt.Sprintf("%d writes of the manager for %d MachineConfigs; rendered completely %s after the last", writes, n, time.Since(applied)))
		Expect(writes).To(And(BeNumerically(">", 0), BeNumerically("<", n)))
		Expect(statuses).To(HaveEach(1))

		By("rendering a change of one MachineConfig")
		last := t.MachineConfig(fmt.Sprintf("60-%04d", n), "infra", "", "")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(last), last)).To(Succeed())
		before := pool.Status.Configuration.Name
		changed := last.DeepCopy()
		changed.Spec.Config = &runtime.RawExtension{Raw: t.MachineConfig("", "", "/etc/many/other", "other").Spec.Config.Raw}
		Expect(lab.ManagementClient.Patch(ctx, changed, client.MergeFrom(last))).To(Succeed(), "an update can conflict with the manager's")
		Eventually(ctx, func() (string, error) {
			_, err := getSources(pool)(ctx)
			return pool.Status.Configuration.Name, err
		}).ShouldNot(Equal(before))
	}, SpecTimeout(3*time.Minute))
})

func must[T any](value T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return value
}
