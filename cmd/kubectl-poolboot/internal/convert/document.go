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
	config, err := ignition.Parse(text)
	if err == nil {
		var warnings []ignition.Problem
		warnings, err = ignition.CheckKeys(text)
		for _, problem := range warnings {
			fmt.Fprintf(o.streams.ErrOut, "warning: %s\n", describe(name, problem))
		}
	}
	if err != nil {
		return locate(name, err)
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

// locate returns an error about a document with the place of each problem in the file.
func locate(name string, err error) error {
	var malformed *ignition.ParseError
	if !errors.As(err, &malformed) {
		return fmt.Errorf("%s: %w", name, err)
	}
	var all []error
	for _, problem := range malformed.Problems {
		all = append(all, errors.New(describe(name, problem)))
	}
	return errors.Join(all...)
}

// describe returns a problem with its place in the file.
func describe(name string, problem ignition.Problem) string {
	if problem.Line > 0 {
		name = fmt.Sprintf("%s: line %d", name, problem.Line)
	}
	problem.Line = 0
	return name + ": " + problem.String()
}
