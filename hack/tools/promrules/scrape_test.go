package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

const root = "../../../"

// scrapeConfig has what docs/tasks.md uses of a scrape configuration. Other fields are refused. Prometheus' own type
// needs the client libraries of all clouds.
type scrapeConfig struct {
	JobName        string            `yaml:"job_name"`
	Scheme         string            `yaml:"scheme"`
	TLSConfig      map[string]bool   `yaml:"tls_config"`
	Authorization  map[string]string `yaml:"authorization"`
	RelabelConfigs []*relabel.Config `yaml:"relabel_configs"`
	Kubernetes     []struct {
		Role       string              `yaml:"role"`
		Namespaces map[string][]string `yaml:"namespaces"`
	} `yaml:"kubernetes_sd_configs"`
}

// deployment has what discovery uses of a Deployment.
type deployment struct {
	Spec struct {
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []struct {
					Name  string
					Ports []struct{ Name string }
				}
			}
		}
	}
}

// read decodes the document of a kind in a manifest.
func read(t *testing.T, path, kind string, into any) {
	t.Helper()
	for _, document := range documents(t, path) {
		if strings.Contains("\n"+document, "\nkind: "+kind+"\n") {
			if err := yaml.Unmarshal([]byte(document), into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%s has no %s", path, kind)
}

// documents returns the documents of a manifest.
func documents(t *testing.T, path string) []string {
	t.Helper()
	content, err := os.ReadFile(root + path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(content), "\n---\n")
}

// deployments returns the Deployments of both programs.
func deployments(t *testing.T) []deployment {
	t.Helper()
	both := make([]deployment, 2)
	read(t, "config/manager/deployment.yaml", "Deployment", &both[0])
	read(t, "config/config-server/deployment.yaml", "Deployment", &both[1])
	return both
}

// ports returns the ports of the Pods of both Deployments as Prometheus discovers them.
func ports(t *testing.T) (found []labels.Labels) {
	t.Helper()
	for _, d := range deployments(t) {
		for _, container := range d.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				found = append(found, labels.FromStrings("__address__", container.Name+":"+port.Name,
					"__meta_kubernetes_pod_container_name", container.Name, "__meta_kubernetes_pod_container_port_name", port.Name))
			}
		}
	}
	return found
}

func TestServiceMonitorFindsBothPrograms(t *testing.T) {
	var monitor struct {
		Spec struct {
			Selector  struct{ MatchLabels map[string]string }
			Endpoints []struct{ Port, Scheme, BearerTokenFile string }
		}
	}
	var kustomization struct {
		Labels []struct{ Pairs map[string]string }
	}
	read(t, "config/prometheus/monitor.yaml", "ServiceMonitor", &monitor)
	read(t, "config/prometheus/kustomization.yaml", "Kustomization", &kustomization)
	if !maps.Equal(monitor.Spec.Selector.MatchLabels, kustomization.Labels[0].Pairs) {
		t.Errorf("it selects %v, and the Services get %v", monitor.Spec.Selector.MatchLabels, kustomization.Labels[0].Pairs)
	}
	var got []string
	for _, document := range documents(t, "config/prometheus/monitor.yaml") {
		var service struct {
			Kind string
			Spec struct {
				Selector map[string]string
				Ports    []struct{ Name, TargetPort string }
			}
		}
		if err := yaml.Unmarshal([]byte(document), &service); err != nil || service.Kind != "Service" {
			continue
		}
		for _, endpoint := range monitor.Spec.Endpoints {
			for _, d := range deployments(t) {
				labels := maps.Clone(d.Spec.Template.Metadata.Labels)
				maps.DeleteFunc(labels, func(key, value string) bool { return service.Spec.Selector[key] != value })
				for _, container := range d.Spec.Template.Spec.Containers {
					for _, port := range container.Ports {
						if endpoint.Port == service.Spec.Ports[0].Name && port.Name == service.Spec.Ports[0].TargetPort && maps.Equal(labels, service.Spec.Selector) {
							got = append(got, endpoint.Scheme+" "+container.Name+":"+port.Name+" "+endpoint.BearerTokenFile)
						}
					}
				}
			}
		}
	}
	if want := []string{"https manager:metrics /var/run/secrets/kubernetes.io/serviceaccount/token", " config-server:metrics "}; !slices.Equal(got, want) {
		t.Errorf("scraped are %q, want %q", got, want)
	}
}

func TestScrapeConfigurationFindsBothPrograms(t *testing.T) {
	page, err := os.ReadFile(root + "docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		ScrapeConfigs []scrapeConfig `yaml:"scrape_configs"`
	}
	if err := goyaml.UnmarshalStrict(regexp.MustCompile("(?ms)^```yaml\n(# prometheus.yaml\n.*?)^```").FindSubmatch(page)[1], &file); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, config := range file.ScrapeConfigs {
		for _, discovered := range ports(t) {
			if target, keep := relabel.Process(discovered, config.RelabelConfigs...); keep {
				got = append(got, config.JobName+" "+config.Scheme+" "+target.Get("__address__"))
			}
		}
		if len(config.Kubernetes) != 1 || config.Kubernetes[0].Role != "pod" || !slices.Equal(config.Kubernetes[0].Namespaces["names"], []string{"poolboot-system"}) {
			t.Errorf("%s does not discover the Pods in poolboot-system", config.JobName)
		}
	}
	if want := []string{"poolboot-manager https manager:metrics", "poolboot-config-server  config-server:metrics"}; !slices.Equal(got, want) {
		t.Errorf("scraped are %q, want %q", got, want)
	}
}
