package agent

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// target is an assignment with the whole configuration of the host.
type target struct {
	assignment.Assignment
	revision string
	// config is the rendered config with the machine's own part. If the assignment says so, it has the disks of the
	// host instead of its own, and outdated is what the host does not get because of that.
	config   update.Config
	outdated []update.Item
}

// newTarget returns the target of an assignment with its own disks. Its rendered config was verified.
func newTarget(revision string, a assignment.Assignment, rendered []byte) (*target, error) {
	if a.Config.IsAsFound() {
		return &target{Assignment: a, revision: revision, config: update.Config{Ignition: ignition.New(), OS: update.OperatingSystem{KernelType: update.DefaultKernel}}}, nil
	}
	_, config, err := update.ParseServed(rendered)
	if err != nil {
		return nil, fmt.Errorf("rendered config %s: %w", a.Config.Name, err)
	}
	machine, err := ignition.Parse(a.Machine)
	if err != nil {
		return nil, fmt.Errorf("the machine's part of the assignment: %w", err)
	}
	config.Ignition = ignition.Merge(config.Ignition, machine)
	// The agent replaces its own program, and not as a part of the configuration.
	config.Ignition.Storage.Files = slices.DeleteFunc(config.Ignition.Storage.Files, func(file types.File) bool {
		return path.Clean(file.Path) == assignment.ProgramPath
	})
	return &target{Assignment: a, revision: revision, config: config}, nil
}

// load returns a stored target.
func (a *Agent) load(revision string) (*target, error) {
	t, err := a.loadWithItsDisks(revision)
	if err != nil {
		return nil, err
	}
	return t, a.keepDisks(t)
}

func (a *Agent) loadWithItsDisks(revision string) (*target, error) {
	stored, rendered, err := a.store.get(revision)
	if err != nil {
		return nil, err
	}
	return newTarget(revision, stored, rendered)
}

// keepDisks replaces the disks of a target by those of the host, if its assignment says so.
func (a *Agent) keepDisks(t *target) error {
	installed := a.journal.disks()
	if !t.Policy.KeepsDisks || installed == "" || installed == t.revision {
		return nil
	}
	host, err := a.loadWithItsDisks(installed)
	if err != nil {
		return fmt.Errorf("the configuration with the disks of this host: %w: %s", err, durable.StartOver)
	}
	t.config, t.outdated = t.config.KeepDisks(host.config)
	return nil
}

// fetch returns the target of a revision, and stores it if it was not stored yet.
func (a *Agent) fetch(ctx context.Context, revision string) (*target, error) {
	document, assigned, err := a.fetchAssignment(ctx, revision)
	if err != nil {
		return nil, err
	}
	return a.fetchTarget(ctx, revision, document, assigned)
}

// fetchAssignment returns the document of a revision and the assignment in it, from the store or else from the config
// server. What is downloaded then has the limit of that assignment.
func (a *Agent) fetchAssignment(ctx context.Context, revision string) (document []byte, assigned assignment.Assignment, err error) {
	defer func() { a.Source.Limit(ptr.Deref(assigned.Staging, assignment.Staging{}).BytesPerSecond) }()
	if document, err = a.store.read(revision + assignmentEnding); err == nil {
		if assigned, err = assignment.Decode(document, revision); err == nil {
			return document, assigned, nil
		}
	}
	if document, err = a.Source.Assignment(ctx); err != nil {
		return nil, assigned, fmt.Errorf("download the assignment: %w", err)
	}
	a.report.notAccepted = ""
	assigned, err = assignment.Decode(document, revision)
	return document, assigned, err
}

// fetchTarget returns the target of an assignment, and stores it if it was not stored yet.
func (a *Agent) fetchTarget(ctx context.Context, revision string, document []byte, assigned assignment.Assignment) (*target, error) {
	stored, err := a.load(revision)
	if !errors.Is(err, errDocument) {
		return stored, err
	}
	rendered, err := a.fetchRendered(ctx, assigned.Config)
	if err != nil {
		return nil, err
	}
	t, err := newTarget(revision, assigned, rendered)
	if err != nil {
		return nil, &unreadableError{err}
	}
	if err := a.store.keep(append(a.journal.keptRevisions(), a.journal.disks(), a.journal.Current, a.journal.Target)...); err != nil { // what was accepted and replaced
		return nil, err
	}
	if err := a.keepDisks(t); err != nil {
		return nil, err
	}
	return t, a.store.put(revision, document, rendered)
}

// unreadableError means that this agent can't read a configuration, which a later one can.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// fetchRendered downloads a rendered config and verifies it, unless its hash is empty.
func (a *Agent) fetchRendered(ctx context.Context, want assignment.RenderedConfig) ([]byte, error) {
	if want.IsAsFound() {
		return nil, nil
	}
	rendered, err := a.Source.Rendered(ctx, want.Name)
	if err != nil {
		return nil, fmt.Errorf("download the rendered config %s: %w", want.Name, err)
	}
	if want.SHA512 != "" && !hasSHA512(rendered, want.SHA512) {
		return nil, fmt.Errorf("the rendered config %s that was downloaded has another SHA-512 than the assignment says: "+
			"if a proxy is between this host and the config server, clear its cache", want.Name)
	}
	return rendered, nil
}

// fetchAdopted returns the target that describes what Ignition wrote, and stores it. It is the assignment of a
// revision, but if its pool changed since the host booted, with the rendered config that the host booted with: the
// machine's own part is the same in both. If the config server does not give that away any more, it is the assignment,
// and what the host has otherwise is found as a difference.
func (a *Agent) fetchAdopted(ctx context.Context, revision string) (*target, error) {
	t, err := a.fetch(ctx, revision)
	if err != nil || t.Config.IsAsFound() {
		return t, err
	}
	installed, err := a.installedConfig()
	if err != nil || installed == "" || installed == t.Config.Name {
		return t, err
	}
	assigned := t.Assignment
	rendered, err := a.fetchRendered(ctx, assignment.RenderedConfig{Name: installed})
	if errors.Is(err, ErrRefused) {
		a.Log.Warn("the config that the host booted with is not available any more: files that only it has are not managed", "config", installed, "error", err)
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	sum := sha512.Sum512(rendered)
	assigned.Config = assignment.RenderedConfig{Name: installed, SHA512: hex.EncodeToString(sum[:])}
	document, err := assignment.Encode(assigned)
	if err != nil {
		return nil, err
	}
	if t, err = newTarget(assignment.Revision(document), assigned, rendered); err != nil {
		return nil, err
	}
	return t, a.store.put(t.revision, document, rendered)
}

// installedConfig returns the name of the rendered config in the file that Ignition wrote, "" if there is none. A file
// that is damaged names none, and is found as a difference later.
func (a *Agent) installedConfig() (string, error) {
	raw, err := a.Root.ReadFile(strings.TrimPrefix(ignition.MachineConfigPath, "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var file ignition.MachineConfigFile
	if err := json.Unmarshal(raw, &file); err != nil {
		a.Log.Warn("the file that names the config with which the host booted is damaged", "file", ignition.MachineConfigPath, "error", err)
		return "", nil
	}
	return file.Name, nil
}

// host returns what trees depend on.
func (a *Agent) host(ctx context.Context) (hosttree.System, error) {
	passwd, err := a.Root.ReadFile("etc/passwd")
	if err != nil {
		return hosttree.System{}, err
	}
	group, err := a.Root.ReadFile("etc/group")
	return hosttree.System{
		Accounts:       hosttree.ParseAccounts(passwd, group),
		SingleKeysFile: a.journal.SingleKeysFile,
		Fetch: func(resource types.Resource) ([]byte, error) {
			return a.contents(ctx, resource)
		},
	}, err
}

// treeOn returns what the configuration of a target writes to a host. Files that are only appended to are not part of
// it: their contents depend on what was there.
func treeOn(t *target, host hosttree.System) (hosttree.Tree, error) {
	tree := hosttree.New(t.config.Ignition)
	maps.DeleteFunc(tree, func(_ string, entry hosttree.Entry) bool { return entry.Appends })
	return tree.On(host)
}

// pathChanges returns the changes of the operations of kind update.ChangePath on a host. after is the whole tree after
// them: a path in the home of a user can also be configured by its absolute name, which counts then.
func pathChanges(operations []update.Operation, after hosttree.Tree, host hosttree.System) ([]hosttree.Change, error) {
	written, removed, isNamed := hosttree.Tree{}, hosttree.Tree{}, map[string]bool{}
	for _, operation := range operations {
		isNamed[operation.Name] = operation.Kind == update.ChangePath && operation.After.Path != nil
		switch {
		case operation.Kind != update.ChangePath:
		case operation.After.Path != nil:
			written[operation.Name] = *operation.After.Path
		case operation.Before.Path != nil:
			removed[operation.Name] = hosttree.Entry{Type: operation.Before.Path.Type} // only its path matters
		}
	}
	written, err := written.On(host)
	if err != nil {
		return nil, err
	}
	if removed, err = removed.On(host); err != nil {
		return nil, err
	}
	homes := maps.Clone(after)
	maps.DeleteFunc(homes, func(name string, _ hosttree.Entry) bool { return path.IsAbs(name) })
	if homes, err = homes.On(host); err != nil {
		return nil, err
	}
	for _, name := range slices.Concat(removed.Paths(), written.Paths()) {
		entry, isConfigured := after[name]
		if isNamed[name] || !isConfigured && homes[name].Type == "" {
			continue
		}
		other := hosttree.Tree{name: homes[name]}
		if isConfigured {
			if other, err = (hosttree.Tree{name: entry}).On(host); err != nil {
				return nil, err
			}
		}
		written[name] = other[name]
	}
	var changes []hosttree.Change
	for _, name := range removed.Paths() {
		if _, stays := written[name]; !stays {
			changes = append(changes, hosttree.Change{Path: name})
		}
	}
	for _, name := range written.Paths() {
		entry := written[name]
		changes = append(changes, hosttree.Change{Path: name, To: &entry})
	}
	return changes, nil
}
