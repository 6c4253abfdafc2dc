package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	kyaml "sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// convertButane prints a Butane document as Ignition or, of OpenShift's variant, as a MachineConfig.
func (o *options) convertButane() error {
	name, text, err := o.readDocument(o.butane)
	if err != nil {
		return err
	}
	if err := checkLocalFiles(text, o.filesDir); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if butane.Variant(string(text)) == butane.VariantOpenShift {
		return o.convertMachineConfig(name, string(text))
	}
	if o.namespace != "" {
		return fmt.Errorf("%s becomes Ignition, which has no namespace: leave out --namespace", name)
	}
	config, err := butane.ParseWithFiles(string(text), o.filesDir)
	if err != nil {
		return locate(name, err)
	}
	return o.printIgnition(config)
}

// convertMachineConfig prints a Butane document of OpenShift's variant as a MachineConfig of Poolboot.
func (o *options) convertMachineConfig(name, text string) error {
	translated, err := butane.ParseMachineConfig(text, o.filesDir)
	if err != nil {
		return locate(name, err)
	}
	var config poolv1.MachineConfig
	if err := kyaml.UnmarshalStrict(translated, &config); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	remark := func(text string, args ...any) {
		severity, about, _ := strings.Cut(fmt.Sprintf(text, args...), ": ")
		fmt.Fprintf(o.streams.ErrOut, "%s: %s: %s\n", severity, name, about)
	}
	if input.IsControlPlane(config.Labels[roleLabel]) {
		remark("warning: MachineConfig %q: no pool selects it by its label %s: control plane machines are in no pool of Poolboot", config.Name, roleLabel)
	}
	configs := []poolv1.MachineConfig{config}
	setWrappers(configs, nil, remark)
	moveKubeletDropins(&configs[0], remark)
	warnWithoutEffect(&configs[0], nil, remark)
	config = configs[0]
	config.ObjectMeta = convertMeta(config.ObjectMeta, o.namespace)
	config.SetGroupVersionKind(input.ConfigKind)
	var refused []error
	for _, err := range checkConfig(&config, remark) {
		refused = append(refused, fmt.Errorf("%s: MachineConfig %q: %s: %s", name, config.Name, err.Field, err.ErrorBody()))
	}
	if len(refused) > 0 {
		return errors.Join(refused...)
	}
	return o.print([]runtime.Object{&config})
}

// localKeys are the keys in Butane whose values are paths of local files.
var localKeys = map[string]bool{"local": true, "contents_local": true, "ssh_authorized_keys_local": true}

// checkLocalFiles refuses local files in a Butane document that are not below a folder, also through links; that are
// no regular files, such as devices; or that no pool could render. Butane compares only the names. An empty path is
// refused too, also without a folder.
func checkLocalFiles(text []byte, folder string) error {
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil //nolint:nilerr // Butane reports it with its line.
	}
	paths := localPaths(document, false)
	if slices.Contains(paths, "") { // of which Butane reads the folder, or nothing
		return errors.New("the path of a local file is empty: name a file below --files-dir, or leave the key out")
	}
	if folder == "" {
		return nil // Butane refuses local files with their lines
	}
	root, err := filepath.EvalSymlinks(folder)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return fmt.Errorf("--files-dir %s: %w", folder, err)
	}
	left := int64(pool.MaxSize)
	for _, local := range paths {
		path, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(local)))
		if err != nil {
			return fmt.Errorf("local file %s: %w", local, err)
		}
		if relative, err := filepath.Rel(root, path); err != nil || !filepath.IsLocal(relative) {
			return fmt.Errorf("local file %s is not below --files-dir %s: move it there", local, folder)
		}
		if err := checkSizes(path, &left); err != nil {
			return fmt.Errorf("local file %s: %w", local, err)
		}
	}
	return nil
}

// localPaths returns the paths of local files in a part of a document; isLocal is true for the value of one of
// localKeys.
func localPaths(part any, isLocal bool) (paths []string) {
	switch part := part.(type) {
	case string:
		if isLocal {
			paths = append(paths, part)
		}
	case []any:
		for _, item := range part {
			paths = append(paths, localPaths(item, isLocal)...)
		}
	case map[string]any:
		for key, value := range part {
			paths = append(paths, localPaths(value, localKeys[key])...)
		}
	case map[any]any: // not all keys are texts
		for key, value := range part {
			name, _ := key.(string)
			paths = append(paths, localPaths(value, localKeys[name])...)
		}
	}
	return paths
}

// checkSizes subtracts the sizes of a file, or of all files of a tree, from the bytes that are left.
func checkSizes(path string, left *int64) error {
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Type()&fs.ModeSymlink != 0 { // Butane writes links in trees as links
			return err
		}
		info, err := os.Lstat(path)
		switch {
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is no regular file: leave it out", path)
		}
		if *left -= info.Size(); *left < 0 {
			return fmt.Errorf("the local files have more than %d bytes, which no pool can render: leave some of them out", pool.MaxSize)
		}
		return nil
	})
}
