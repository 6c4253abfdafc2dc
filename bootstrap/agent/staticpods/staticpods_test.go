package staticpods

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const manifest = "/etc/kubernetes/manifests/app.yaml"

// podWith returns a manifest with a container that has these fields.
func podWith(fields ...string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec:\n  hostNetwork: true\n  containers:\n  - name: app\n    " + strings.Join(fields, "\n    ") + "\n"
}

// get returns a probe by HTTP.
func get(of, fields string) string {
	return of + "Probe: {httpGet: {" + fields + "}}"
}

// status answers each path with the status that it names, such as /200.
func status(response http.ResponseWriter, request *http.Request) {
	var code int
	_, _ = fmt.Sscanf(request.URL.Path, "/%d", &code)
	response.WriteHeader(code)
}

var _ = Describe("A static Pod", func() {
	passes := func(ctx SpecContext, h *host) bool {
		GinkgoHelper()
		passing, failing := h.Passing(ctx), h.Failing(ctx, []string{manifest})
		if len(passing) > 0 {
			Expect(passing).To(ConsistOf(manifest))
			Expect(failing).To(BeEmpty(), "what passes does not fail")
		}
		return len(passing) > 0
	}

	DescribeTable("passes as for the kubelet if its probe", func(ctx SpecContext, path string, is bool) {
		h, port := newHost(), serve(httptest.NewServer, status)
		h.write(manifest, podWith(get("readiness", "host: 127.0.0.1, port: "+port+", path: '"+path+"'")))
		Expect(passes(ctx, h)).To(Equal(is))
	},
		Entry("is answered with 200", "/200", true),
		Entry("is answered with 204", "/204", true),
		Entry("is answered with 399", "/399", true),
		Entry("is not answered with 400", "/400", false),
		Entry("is not answered with 500", "/500", false),
		Entry("has a query", "/200?verbose=1", true),
	)

	It("passes by HTTPS whoever issued the certificate, and not by HTTP", func(ctx SpecContext) {
		h, port := newHost(), serve(httptest.NewTLSServer, status)
		h.write(manifest, podWith(get("liveness", "scheme: HTTPS, host: 127.0.0.1, path: /200, port: "+port)))
		Expect(passes(ctx, h)).To(BeTrue())
		h.write(manifest, podWith(get("liveness", "host: 127.0.0.1, path: /200, port: "+port)))
		Expect(passes(ctx, h)).To(BeFalse())
	})

	DescribeTable("passes if its probe does in one of three looks, and ends with that", func(ctx SpecContext, after, looks int, is bool) {
		seen := 0
		h, port := newHost(), serve(httptest.NewServer, func(response http.ResponseWriter, _ *http.Request) {
			if seen++; seen <= after {
				response.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		h.write(manifest, podWith(get("readiness", "host: 127.0.0.1, port: "+port)))
		h.write("/etc/kubernetes/manifests/without.yaml", podWith("image: a"))
		Expect(h.Passing(ctx)).To(HaveLen(map[bool]int{true: 1}[is]))
		Expect(seen).To(Equal(looks))
	},
		Entry("the first one", 0, 1, true),
		Entry("the second one", 1, 2, true),
		Entry("the last one", 2, 3, true),
		Entry("none", 3, 3, false),
	)

	DescribeTable("is probed by readiness, else liveness, else startup", func(ctx SpecContext, is bool, probes ...string) {
		h, port := newHost(), serve(httptest.NewServer, status)
		for i := range probes {
			probes[i] = strings.ReplaceAll(probes[i], "PORT", port)
		}
		h.write(manifest, podWith(probes...))
		Expect(passes(ctx, h)).To(Equal(is))
	},
		Entry(nil, true, get("readiness", "port: PORT, path: /200"), get("liveness", "port: PORT, path: /500"), get("startup", "port: PORT, path: /500")),
		Entry(nil, false, get("readiness", "port: PORT, path: /500"), get("liveness", "port: PORT, path: /200")),
		Entry(nil, true, get("liveness", "port: PORT, path: /200"), get("startup", "port: PORT, path: /500")),
		Entry(nil, true, get("startup", "port: PORT, path: /200")),
		Entry("a readiness probe of another kind says nothing", true, "readinessProbe: {exec: {command: [a]}}", get("liveness", "port: PORT, path: /200")),
		Entry("by the name of a port", true, "ports: [{name: other, containerPort: 1}, {name: probe-port, containerPort: PORT}]", get("readiness", "port: probe-port, path: /200")),
		Entry("by the number of a port in quotes", true, get("readiness", `port: "PORT", path: /200`)),
		Entry("by localhost", true, get("readiness", "host: localhost, port: PORT, path: /200")),
		Entry("not by a port that it does not have", false, get("readiness", "port: none, path: /200")),
		Entry("not by a port that does not exist", false, get("readiness", "port: 65536, path: /200")),
	)

	It("passes if all its containers do, and its manifest can be JSON", func(ctx SpecContext) {
		h, port := newHost(), serve(httptest.NewServer, status)
		json := `{"kind":"Pod","spec":{"hostNetwork":true,"containers":[{"name":"a","readinessProbe":{"httpGet":{"port":%[1]s,"path":"/200"}}},{"name":"b","readinessProbe":{"httpGet":{"port":%[1]s,"path":"/%[2]d"}}}]}}`
		h.write(manifest, fmt.Sprintf(json, port, 200))
		Expect(passes(ctx, h)).To(BeTrue())
		h.write(manifest, fmt.Sprintf(json, port, 503))
		Expect(passes(ctx, h)).To(BeFalse())
		Expect(h.Failing(ctx, []string{manifest})).To(Equal("static Pod " + manifest + ": container b: GET http://localhost:" + port + "/503: 503 Service Unavailable"))
	})

	It("is sent the headers of its probe, and no credential", func(ctx SpecContext) {
		var seen *http.Request
		h, port := newHost(), serve(httptest.NewTLSServer, func(_ http.ResponseWriter, r *http.Request) { seen = r })
		h.write(manifest, podWith(get("readiness", "scheme: HTTPS, port: "+port+", httpHeaders: [{name: X-A, value: b}, {name: Host, value: app.example}]")))
		Expect(passes(ctx, h)).To(BeTrue())
		Expect(seen.Host).To(Equal("app.example"))
		Expect(seen.Header).To(HaveKeyWithValue("X-A", []string{"b"}))
		Expect(seen.Header).NotTo(HaveKey("Authorization"))
		Expect(seen.TLS.PeerCertificates).To(BeEmpty())
	})

	DescribeTable("that says nothing about itself passes nothing, and fails nothing", func(ctx SpecContext, contents string) {
		h := newHost()
		h.write(manifest, contents)
		Expect(passes(ctx, h)).To(BeFalse())
		Expect(h.Failing(ctx, []string{manifest})).To(BeEmpty())
	},
		Entry("without a probe", podWith("image: a")),
		Entry("with a probe that is no HTTP request", podWith("readinessProbe: {tcpSocket: {port: 1}}")),
		Entry("with an address that only the container runtime knows", strings.ReplaceAll(podWith(get("readiness", "port: 1")), "hostNetwork: true", "hostNetwork: false")),
		Entry("another kind", strings.Replace(podWith(get("readiness", "port: 1")), "kind: Pod", "kind: Deployment", 1)),
		Entry("an empty file", ""),
	)

	It("that passed before fails when its manifest is gone or can't be read", func(ctx SpecContext) {
		h := newHost()
		Expect(h.Failing(ctx, []string{manifest})).To(Equal("static Pod " + manifest + ": it does not exist"))
		h.write(manifest, "a: [")
		Expect(h.Failing(ctx, []string{manifest})).To(ContainSubstring("it is no manifest of a Pod"))
		Expect(h.Failing(ctx, nil)).To(BeEmpty())
	})

	DescribeTable("is found where the kubelet looks", func(ctx SpecContext, name, contents string) {
		h, port := newHost(), serve(httptest.NewServer, status)
		h.write(name, contents)
		for _, directory := range []string{"/etc/pods", "/etc/kubernetes/manifests", "/etc/kubernetes/kubelet.conf.d/pods"} {
			h.write(directory+"/app.yaml", podWith(get("readiness", "path: /200, port: "+port)))
			h.write(directory+"/.hidden.yaml", podWith(get("readiness", "path: /200, port: "+port)))
		}
		Expect(os.MkdirAll(h.path("/etc/pods/directory"), 0o755)).To(Succeed())
		want := "/etc/pods/app.yaml"
		if !strings.Contains(contents, "/etc/pods") {
			want = manifest
		}
		if strings.Contains(contents, ": pods") {
			want = "/etc/kubernetes/kubelet.conf.d/pods/app.yaml"
		}
		Expect(h.Passing(ctx)).To(ConsistOf(want))
	},
		Entry("with the configuration of Poolboot", ignition.KubeletConfigPath, "staticPodPath: /etc/pods"),
		Entry("with that of kubeadm", ignition.KubeadmKubeletConfigPath, "kind: KubeletConfiguration\nstaticPodPath: /etc/pods/"),
		Entry("with a drop-in", ignition.KubeletConfigDirectory+"/10-a.conf", `{"staticPodPath": "/etc/pods"}`),
		Entry("with a path that is relative to its file", ignition.KubeletConfigDirectory+"/10-a.conf", "staticPodPath: pods"),
		Entry("with a path that is a file", ignition.KubeadmKubeletConfigPath, "staticPodPath: /etc/pods/app.yaml"),
		Entry("with a configuration that names none", ignition.KubeadmKubeletConfigPath, "maxPods: 5"),
		Entry("with a configuration that can't be read", ignition.KubeadmKubeletConfigPath, "{"),
	)
})

var _ = Describe("What static Pods mount", func() {
	It("is known from all manifests that can be read", func() {
		h := newHost()
		h.write(manifest, podWith("image: a")+"  volumes: [{name: pki, hostPath: {path: /data/pki/, type: Directory}}, {name: other, emptyDir: {}}]\n")
		h.write("/etc/kubernetes/manifests/etcd.yaml", `{"kind":"Pod","spec":{"volumes":[{"name":"a","hostPath":{"path":"/data/etcd"}},{"name":"b","hostPath":{"path":"/data/pki"}},{"name":"c","hostPath":{"path":"relative"}}]}}`)
		h.write("/etc/kubernetes/manifests/broken.yaml", "a: [")
		h.write("/etc/kubernetes/manifests/other.yaml", "kind: Deployment\nspec: {volumes: [{hostPath: {path: /data/other}}]}\n")
		Expect(h.Volumes()).To(Equal([]string{"/data/etcd", "/data/pki"}))
	})
})

var _ = Describe("A hostile manifest", func() {
	DescribeTable("does not make the host send anything to another one", func(ctx SpecContext, address string) {
		h := newHost()
		h.write(manifest, podWith(get("readiness", "path: /200, port: 80, host: '"+address+"'")))
		began := time.Now()
		Expect(h.Passing(ctx)).To(BeEmpty())
		Expect(h.Failing(ctx, []string{manifest})).To(ContainSubstring("it is no address of this host"))
		Expect(time.Since(began)).To(BeNumerically("<", usualTimeout), "nothing is sent")
	},
		Entry("an address", "192.0.2.1"),
		Entry("a name", "metadata.google.internal"),
		Entry("a name that begins as an address", "127.0.0.1.example.com"),
		Entry("an address with a user", "user@127.0.0.1"),
	)

	It("is not led to another host by a redirect, which passes as for the kubelet", func(ctx SpecContext) {
		asked := false
		other, err := net.Listen("tcp", "127.0.0.2:0")
		Expect(err).NotTo(HaveOccurred())
		server := &httptest.Server{Listener: other, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })}} //nolint:gosec // a test
		server.Start()
		DeferCleanup(server.Close)
		h, port := newHost(), serve(httptest.NewServer, func(response http.ResponseWriter, request *http.Request) {
			http.Redirect(response, request, server.URL, http.StatusFound)
		})
		h.write(manifest, podWith(get("readiness", "host: 127.0.0.1, port: "+port)))
		Expect(h.Passing(ctx)).To(ConsistOf(manifest))
		Expect(asked).To(BeFalse())
	})

	It("ends a redirect loop, and follows a redirect to its own host", func(ctx SpecContext) {
		requests := 0
		h, port := newHost(), serve(httptest.NewServer, func(response http.ResponseWriter, request *http.Request) {
			requests++
			to := map[string]string{"/ok": "/200", "/bad": "/500", "/loop": "/loop"}[request.URL.Path]
			if to == "" {
				status(response, request)
				return
			}
			http.Redirect(response, request, to, http.StatusFound)
		})
		for path, passes := range map[string]bool{"/ok": true, "/bad": false, "/loop": false} {
			h.write(manifest, podWith(get("readiness", "host: 127.0.0.1, path: "+path+", port: "+port)))
			Expect(h.Passing(ctx)).To(HaveLen(map[bool]int{true: 1}[passes]), path)
		}
		Expect(requests).To(BeNumerically("<", maxLooks*20))
	})

	It("can't hang: an answer that never begins, that never ends, and headers that never end", func(ctx SpecContext) {
		for name, answer := range map[string]func(io.Writer){
			"nothing": func(io.Writer) { <-ctx.Done() },
			"headers": func(w io.Writer) {
				_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\n")
				for err := error(nil); err == nil; {
					_, err = io.WriteString(w, "X-A: "+strings.Repeat("a", 1<<10)+"\r\n")
				}
			},
		} {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(listener.Close)
			go func() {
				for {
					connection, err := listener.Accept()
					if err != nil {
						return
					}
					go answer(connection)
				}
			}()
			h := newHost()
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			h.write(manifest, podWith(get("readiness", "host: 127.0.0.1, port: "+port)))
			began := time.Now()
			Expect(h.Passing(ctx)).To(BeEmpty(), name)
			Expect(time.Since(began)).To(BeNumerically("<", 5*usualTimeout), name)
		}
		h, port := newHost(), serve(httptest.NewServer, func(response http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(response, strings.Repeat("a", 1<<10))
			}
		})
		h.write(manifest, podWith(get("readiness", "host: 127.0.0.1, port: "+port)))
		Expect(h.Passing(ctx)).To(ConsistOf(manifest), "a body that never ends is not read")
	})

	It("can't hang, and says nothing about others", func(ctx SpecContext) {
		h, port := newHost(), serve(httptest.NewServer, status)
		good := "/etc/kubernetes/manifests/good.yaml"
		h.write(good, podWith(get("readiness", "path: /200, port: "+port)))
		probe := get("readiness", "path: /200, port: "+port)
		h.write("/etc/kubernetes/manifests/huge.yaml", podWith(probe)+"#"+strings.Repeat("a", maxManifest))
		h.write("/etc/kubernetes/manifests/many.yaml", podWith(probe)+strings.Repeat("  - {name: a, "+probe+"}\n", maxProbes))
		h.write("/etc/kubernetes/manifests/deep.yaml", "a: "+strings.Repeat("[", 100<<10))
		h.write("/etc/kubernetes/manifests/aliases.yaml", "a: &a ["+strings.Repeat("x,", 100)+"]\nb: &b ["+strings.Repeat("*a,", 100)+"]\nc: &c ["+strings.Repeat("*b,", 100)+"]\nd: &d ["+
			strings.Repeat("*c,", 100)+"]\nspec: {containers: [*d, *d]}\n")
		h.write("/etc/kubernetes/manifests/long.yaml", "a: &a "+strings.Repeat("x", 60<<10)+"\nb: ["+strings.Repeat("*a,", 10<<10)+"]\nkind: Pod\n")
		h.write("/etc/kubernetes/manifests/containers.yaml", "a: &a {name: a, "+probe+"}\nkind: Pod\nspec: {hostNetwork: true, containers: ["+strings.Repeat("*a,", 30<<10)+"]}\n")
		Expect(syscall.Mkfifo(h.path("/etc/kubernetes/manifests/pipe.yaml"), 0o600)).To(Succeed())
		Expect(os.Symlink("loop.yaml", h.path("/etc/kubernetes/manifests/loop.yaml"))).To(Succeed())
		Expect(os.Symlink("../../../../../etc/passwd", h.path("/etc/kubernetes/manifests/outside.yaml"))).To(Succeed())
		began := time.Now()
		Expect(h.Passing(ctx)).To(ConsistOf(good))
		Expect(time.Since(began)).To(BeNumerically("<", 10*time.Second))
	})

	It("has no secret in what is reported, and takes the time that it asks for at most", func(ctx SpecContext) {
		h, port := newHost(), serve(httptest.NewServer, status)
		h.write(manifest, podWith(get("readiness", "port: "+port+", path: '/500?token=secret', httpHeaders: [{name: Authorization, value: secret}]")))
		Expect(h.Failing(ctx, []string{manifest})).To(And(ContainSubstring("/500: 500 Internal Server Error"), Not(ContainSubstring("secret"))))
		h.write(manifest, "kind: Pod\nspec: {containers: secret}")
		Expect(h.Failing(ctx, []string{manifest})).NotTo(ContainSubstring("secret"))
		probes, err := parse([]byte(podWith("readinessProbe: {timeoutSeconds: 1000000, httpGet: {port: 1}}")))
		Expect(err).NotTo(HaveOccurred())
		Expect(probes[0].timeout).To(Equal(maxTimeout))
	})
})
