// Package input reads the objects that commands answer from, out of files or out of a cluster, and serves both as a
// client.Reader: a command that takes both has one function that gathers what it needs. It decides nothing about pools
// or Nodes.
package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// Source is where a command reads objects: files, or the management cluster.
type Source struct {
	client.Reader
	// Namespace is that of the objects that the command line names; empty for files, where names are enough.
	Namespace string
	// InFiles is true for files, which do not need to contain everything.
	InFiles bool
	// subject starts messages about what the source contains, with the verb.
	subject string
	// Workload returns a reader of a workload cluster's objects, of which files contain Nodes.
	Workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
}

// Source returns the objects in files as a source.
func (o *Objects) Source() *Source {
	return &Source{Reader: o, InFiles: true, subject: "the files contain",
		Workload: func(context.Context, client.ObjectKey) (client.Reader, error) { return o, nil }}
}

// Source returns the cluster as a source.
func (c *Cluster) Source() *Source {
	return &Source{Reader: c, Namespace: c.Namespace, subject: "namespace " + c.Namespace + " contains", Workload: c.Workload}
}

// OpenSource returns the files of the command line or, without any, the management cluster.
func OpenSource(files *Files, args []string, to Connection) (*Source, error) {
	if len(files.Names)+len(args) > 0 {
		objects, err := files.Objects(args)
		if err != nil {
			return nil, err
		}
		return objects.Source(), nil
	}
	cluster, err := to.Open()
	if err != nil {
		return nil, err
	}
	return cluster.Source(), nil
}

// GetNamed reads the object with a name that a user entered, from the namespace of the source.
func (s *Source) GetNamed(ctx context.Context, name string, object client.Object) error {
	err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) && !s.InFiles {
		return fmt.Errorf("%w: correct the name, or set --namespace", err)
	}
	return err
}

// Get reads an object. Its error names the object.
func (s *Source) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, object, options...)
	if err == nil || s.InFiles {
		return err
	}
	return fmt.Errorf("get %s %s: %w", reflect.TypeOf(object).Elem().Name(), klog.KRef(key.Namespace, key.Name), err)
}

// Locate adds the place in the files to an error about an object in them.
func (s *Source) Locate(err error) error {
	objects, inFiles := s.Reader.(*Objects)
	if !inFiles || err == nil {
		return err
	}
	return objects.Locate(objects.explainPools(err))
}

// explainPools returns an error about pools with each of them and its fields. Other errors are returned as they are.
func (o *Objects) explainPools(err error) error {
	var selector *pool.SelectorError
	var copies *pool.DuplicateError
	var kubelet *pool.KubeletError
	switch {
	case errors.As(err, &copies):
		var all []error
		for _, name := range copies.Pools[1:] {
			all = append(all, fmt.Errorf("%s %q: spec.poolRole: MachineConfigPool %q has the role %q too: change or remove one of them", PoolKind.Kind, name, copies.Pools[0], copies.Role))
		}
		return errors.Join(all...)
	case errors.As(err, &kubelet):
		return o.Refuse(PoolKind.Kind, kubelet.Pool, kubelet.Explain())
	case errors.As(err, &selector):
		for _, p := range Of[*poolv1.MachineConfigPool](o) {
			of := map[string]*metav1.LabelSelector{"spec.nodeSelector": p.Spec.NodeSelector, "spec.machineConfigSelector": p.Spec.MachineConfigSelector}[selector.Path]
			if p.Name == selector.Pool {
				errs := metav1validation.ValidateLabelSelector(of, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(selector.Path))
				return cmp.Or(o.Refuse(PoolKind.Kind, p.Name, errs), err)
			}
		}
	}
	return err
}

// LocateText adds the place in the files to a remark about an object in them.
func (s *Source) LocateText(text string) string {
	if objects, inFiles := s.Reader.(*Objects); inFiles {
		return objects.LocateText(text).Error()
	}
	return text
}

// ExplainMissing adds the remedy to the error that there is no pool with a role, which names --pool when the flag has
// this role. Other errors are returned as they are.
func (s *Source) ExplainMissing(err error, role string) error {
	missing := (*pool.NotFoundError)(nil)
	if !errors.As(err, &missing) {
		return err
	}
	if s.InFiles {
		err = fmt.Errorf("the files contain no MachineConfigPool of role %q: correct the role, or add a file with the pool; "+
			"kubectl get pbpool,pbmconf -o yaml prints those of a cluster", missing.Role)
	}
	if missing.Role == role {
		err = fmt.Errorf("--pool %s: %w", role, err)
	}
	return err
}
