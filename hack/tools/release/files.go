package main

import (
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/krew/pkg/constants"
	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

const (
	plugin  = "kubectl-poolboot"
	project = "https://github.com/poolboot/cluster-api-bootstrap-provider-poolboot"
)

// writePlugin packs the plugin for each platform, and writes the manifest with which krew installs it.
func writePlugin(directory, version, url string, platforms []string) error {
	manifest := index.Plugin{
		TypeMeta:   metav1.TypeMeta{APIVersion: constants.CurrentAPIVersion, Kind: constants.PluginKind},
		ObjectMeta: metav1.ObjectMeta{Name: "poolboot"},
		Spec: index.PluginSpec{
			Version: version, Homepage: project, ShortDescription: "Machine config pools of bare-metal Cluster API clusters",
			Description: "Show what pools render and what a change will do, follow boots and updates, retry and pause them,\nand convert OpenShift's machine configs.\n",
		},
	}
	for _, platform := range platforms {
		system, architecture, ok := strings.Cut(platform, "-")
		if !ok {
			return fmt.Errorf("%s: want OS-ARCHITECTURE", platform)
		}
		program := filepath.Join(directory, plugin+"-"+platform)
		archive := program + ".tar.gz"
		err := writeFile(archive, func(w io.Writer) error {
			packed, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // the level is valid
			if err := pack(packed, file{program, plugin, 0o755}, file{"LICENSE", "LICENSE", 0o644}); err != nil {
				return err
			}
			return packed.Close()
		})
		if err != nil {
			return err
		}
		sum, err := hash(archive)
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, index.Platform{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"os": system, "arch": architecture}},
			URI:      url + "/" + filepath.Base(archive), Sha256: sum, Bin: plugin,
			Files: []index.FileOperation{{From: plugin, To: "."}, {From: "LICENSE", To: "."}},
		})
		if err := os.Remove(program); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "krew-poolboot.yaml"), text, 0o644)
}

// writeSBOM writes a software bill of materials: the modules that Go's linker recorded in each program.
func writeSBOM(output, version string, programs []string) error {
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: "poolboot", Version: version, BOMRef: "poolboot@" + version,
		ExternalReferences: &[]cyclonedx.ExternalReference{{Type: cyclonedx.ERTypeWebsite, URL: project}},
	}}
	components, dependencies := []cyclonedx.Component{}, []cyclonedx.Dependency{}
	known := map[string]bool{}
	add := func(component cyclonedx.Component) {
		if !known[component.BOMRef] {
			known[component.BOMRef] = true
			components = append(components, component)
		}
	}
	for _, path := range programs {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		program := cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: filepath.Base(path), Version: version, BOMRef: filepath.Base(path) + "@" + version}
		add(program)
		goVersion := strings.TrimPrefix(info.GoVersion, "go")
		needs := []string{"pkg:golang/stdlib@" + goVersion}
		add(cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: "stdlib", Version: goVersion, BOMRef: needs[0], PackageURL: needs[0]})
		for _, module := range info.Deps {
			if module.Replace != nil && module.Replace.Path[0] == '.' {
				module.Version = version // a folder of the same source
			} else if module.Replace != nil {
				module = module.Replace
			}
			reference := "pkg:golang/" + module.Path + "@" + module.Version
			needs = append(needs, reference)
			add(cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, BOMRef: reference, PackageURL: reference})
		}
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: program.BOMRef, Dependencies: &needs})
	}
	bom.Components, bom.Dependencies = &components, &dependencies
	return writeFile(output, func(w io.Writer) error {
		return cyclonedx.NewBOMEncoder(w, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

// sums is the file with the checksums, in the format of sha256sum.
const sums = "SHA256SUMS"

func writeSums(directory string) error {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, entry := range entries {
		if entry.Name() == sums {
			continue
		}
		sum, err := hash(filepath.Join(directory, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, entry.Name())
	}
	return os.WriteFile(filepath.Join(directory, sums), []byte(text.String()), 0o644)
}

// hash returns the SHA-256 sum of a file in hex.
func hash(path string) (string, error) {
	stream, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, stream); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}
