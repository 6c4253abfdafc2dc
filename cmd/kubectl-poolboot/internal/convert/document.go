package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// readDocument returns the text of a file, and its name for messages.
func (o *options) readDocument(file string) (name string, text []byte, err error) {
	if file == input.Stdin {
		name = "standard input"
		text, err = io.ReadAll(o.streams.In)
	} else {
		name = file
		text, err = os.ReadFile(file)
	}
	if err == nil {
		text, err = input.Normalize(text)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return name, text, err
}

// convertIgnition prints an Ignition document in the version that Poolboot uses. It refuses keys that Ignition would
// ignore with their content, and warns of other keys that it ignores.
func (o *options) convertIgnition() error {
	name, text, err := o.readDocument(o.ignition)
	if err != nil {
		return err
	}
	whole := input.NewText(name, text)
	config, err := ignition.Parse(text)
	warnings, lost := ignition.CheckKeys(text)
	for _, problem := range warnings {
		fmt.Fprintf(o.streams.ErrOut, "warning: %s\n", whole.Locate(problem))
	}
	if err == nil {
		err = ignition.CheckContents(config)
	}
	if err := locate(whole, err, lost); err != nil {
		return err
	}
	return o.printIgnition(config)
}

// printIgnition prints a configuration as JSON or YAML.
func (o *options) printIgnition(config ignition.Config) error {
	raw, err := ignition.Marshal(config)
	if err == nil && o.output.Format == cli.FormatYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err == nil {
		_, err = fmt.Fprintf(o.streams.Out, "%s\n", bytes.TrimSpace(raw))
	}
	return err
}

// locate returns the problems in errors about a document, with the place of each.
func locate(whole *input.Text, errs ...error) error {
	var all []error
	for _, err := range errs {
		var malformed *ignition.ParseError
		if !errors.As(err, &malformed) {
			all = append(all, err)
			continue
		}
		for _, problem := range malformed.Problems {
			all = append(all, whole.Locate(problem))
		}
	}
	return errors.Join(input.InOrder(all...)...)
}
