package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kyaml "sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// convertButane prints a Butane document as Ignition or, of OpenShift's variant, as a MachineConfig.
func (o *options) convertButane() error {
	name, text, err := o.readDocument(o.butane)
	if err != nil {
		return err
	}
	whole := input.NewText(name, text)
	if err := checkLocalFiles(whole, text, o.filesDir); err != nil {
		return err
	}
	if butane.Variant(string(text)) == butane.VariantOpenShift {
		return o.convertMachineConfig(whole, string(text))
	}
	if o.namespace != "" {
		return fmt.Errorf("%s becomes Ignition, which has no namespace: leave out --namespace", name)
	}
	config, err := butane.ParseWithFiles(string(text), o.filesDir)
	if err == nil {
		err = ignition.CheckContents(config)
	}
	if err != nil {
		return locate(whole, err)
	}
	o.warnRefused(whole, config)
	return o.printIgnition(config)
}

// warnRefused warns of what is valid Ignition and Poolboot refuses in a MachineConfig, or warns of.
func (o *options) warnRefused(whole *input.Text, config ignition.Config) {
	raw, err := ignition.Marshal(config)
	utilruntime.Must(err) // it was read
	warnings, refused := validation.MachineConfig(&poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: raw}}})
	for _, err := range refused {
		warnings = append(warnings, fmt.Sprintf("%s: Poolboot refuses it in a MachineConfig: %s", err.Field, input.DescribeField(err)))
	}
	for _, warning := range warnings {
		at, why := cutField(warning)
		fmt.Fprintf(o.streams.ErrOut, "warning: %v\n", whole.Locate(ignition.Problem{Path: at, Message: why}))
	}
}

// convertMachineConfig prints a Butane document of OpenShift's variant as a MachineConfig of Poolboot.
func (o *options) convertMachineConfig(whole *input.Text, text string) error {
	translated, err := butane.ParseMachineConfig(text, o.filesDir)
	if err != nil {
		return locate(whole, err)
	}
	var config poolv1.MachineConfig
	if err := kyaml.UnmarshalStrict(translated, &config); err != nil {
		return whole.Errorf("", "%v", err)
	}
	remark := func(text string, args ...any) {
		severity, about, _ := strings.Cut(fmt.Sprintf(text, args...), ": ")
		at, why := cutField(strings.TrimPrefix(about, fmt.Sprintf("MachineConfig %q: ", config.Name)))
		fmt.Fprintf(o.streams.ErrOut, "%s: %s\n", severity, whole.Locate(ignition.Problem{Path: at, Message: why}))
	}
	configs := []poolv1.MachineConfig{config}
	wrong := convertConfigs(configs, nil, o.namespace, runtimeCRIO, remark)
	var refused []error
	for _, err := range append(wrong[config.Name], checkConfig(&configs[0], []poolv1.MachineConfigPool{input.NewBuiltIn(input.Master)}, remark)...) {
		refused = append(refused, whole.Locate(ignition.Problem{Path: fieldOfButane(err.Field), Message: input.DescribeField(err)}))
	}
	if len(refused) > 0 {
		return errors.Join(input.InOrder(refused...)...)
	}
	return o.output.PrintManifest(o.streams.Out, &configs[0])
}

// butaneFields are the fields of OpenShift's variant that are not part of Ignition.
var butaneFields = map[string]string{"kernelArguments": "openshift.kernel_arguments", "kernelType": "openshift.kernel_type",
	"extensions": "openshift.extensions", "fips": "openshift.fips"}

// fieldOfButane returns the path in a Butane document of OpenShift's variant for a path in its MachineConfig.
func fieldOfButane(path string) string {
	if inside, isIgnition := strings.CutPrefix(path, "spec.config."); isIgnition {
		return inside
	}
	inside := strings.TrimPrefix(path, "spec.")
	for field, of := range butaneFields {
		if rest, has := strings.CutPrefix(inside, field); has {
			return of + rest
		}
	}
	return inside
}

// fieldAtStart matches the field of a MachineConfig at the start of a remark.
var fieldAtStart = regexp.MustCompile(`^((?:spec|metadata)(?:\.\w+|\[[^\]]*\])*): `)

// cutField cuts the field from the start of a remark, as it is in Butane.
func cutField(text string) (path, rest string) {
	match := fieldAtStart.FindStringSubmatch(text)
	if match == nil {
		return "", text
	}
	return fieldOfButane(match[1]), strings.TrimPrefix(text, match[0])
}

// localKeys are the keys in Butane whose values are paths of local files.
var localKeys = map[string]bool{"local": true, "contents_local": true, "ssh_authorized_keys_local": true}

// checkLocalFiles refuses local files in a Butane document that are not below a folder, also through links; that are
// no regular files, such as devices; or that no pool could render. Butane compares only the names. A path that is empty
// or no string is refused too, also without a folder.
func checkLocalFiles(whole *input.Text, text []byte, folder string) error {
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		_, err = butane.Parse(string(text)) // which explains it
		return locate(whole, cmp.Or(err, errors.New("the document can't be searched for local files: correct it")))
	}
	files := localPaths(document, "", false)
	for _, local := range files {
		switch {
		case !local.isString: // Butane reads 5 as the name of a file too
			return whole.Errorf(local.field, "the path of a local file must be a string: quote it")
		case local.name == "": // Butane reads the folder, or nothing
			return whole.Errorf(local.field, "the path of a local file is empty: name a file below --files-dir, or leave the key out")
		}
	}
	if folder == "" {
		return nil // Butane refuses local files with their lines
	}
	root, err := filepath.EvalSymlinks(folder)
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return fmt.Errorf("--files-dir %s: %w: name another folder", folder, cause(err))
	}
	var refused []error
	left := int64(pool.MaxSize)
	for _, local := range files {
		path, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(local.name)))
		if err != nil {
			refused = append(refused, whole.Errorf(local.field, "%s in --files-dir %s: %v: correct the name, or add the file", local.name, folder, cause(err)))
			continue
		}
		if relative, err := filepath.Rel(root, path); err != nil || !filepath.IsLocal(relative) {
			refused = append(refused, whole.Errorf(local.field, "%s is not below --files-dir %s: move it there", local.name, folder))
		} else if err := checkSizes(path, &left); err != nil {
			refused = append(refused, whole.Errorf(local.field, "%s: %v", local.name, err))
		}
	}
	return errors.Join(input.InOrder(refused...)...)
}

// cause returns an error about a file without its path.
func cause(err error) error {
	if about, ok := errors.AsType[*fs.PathError](err); ok {
		return about.Err
	}
	return err
}

// localFile is the name of a local file, and the field with it.
type localFile struct {
	field, name string
	isString    bool
}

// localPaths returns the local files in a part of a document; isLocal is true for the value of one of localKeys.
func localPaths(part any, at string, isLocal bool) (files []localFile) {
	switch part := part.(type) {
	case nil:
	case []any:
		for i, item := range part {
			files = append(files, localPaths(item, fmt.Sprintf("%s[%d]", at, i), isLocal)...)
		}
	case map[string]any:
		for key, value := range part {
			files = append(files, localPaths(value, ignition.JoinPath(at, key), localKeys[key])...)
		}
	case map[any]any: // not all keys are texts
		for key, value := range part {
			name, _ := key.(string)
			files = append(files, localPaths(value, ignition.JoinPath(at, name), localKeys[name])...)
		}
	default:
		if isLocal {
			name, isString := part.(string)
			files = append(files, localFile{at, name, isString})
		}
	}
	return files
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
