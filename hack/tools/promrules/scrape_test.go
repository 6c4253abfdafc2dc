package main

import (
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

// ports returns the ports of the Pods of both Deployments as Prometheus discovers them.
func ports(t *testing.T) (found []labels.Labels) {
	t.Helper()
	for _, path := range []string{"config/manager/deployment.yaml", "config/config-server/deployment.yaml"} {
		content, err := os.ReadFile(root + path)
		if err != nil {
			t.Fatal(err)
		}
		start := strings.Index(string(content), "apiVersion: apps/v1\nkind: Deployment\n")
		document, _, _ := strings.Cut(string(content[max(0, start):]), "\n---\n")
		var deployment struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name  string
							Ports []struct{ Name string }
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
			t.Fatal(err)
		}
		for _, container := range deployment.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				found = append(found, labels.FromStrings("__address__", container.Name+":"+port.Name,
					"__meta_kubernetes_pod_container_name", container.Name, "__meta_kubernetes_pod_container_port_name", port.Name))
			}
		}
	}
	return found
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
