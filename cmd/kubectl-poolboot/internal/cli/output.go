package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Formats of --output.
const (
	FormatJSON = "json"
	FormatYAML = "yaml"
)

// Output is the flag --output of one command.
type Output struct {
	// Format is the value of the flag; empty for the default.
	Format  string
	formats []string
}

// AddFlag defines --output. Formats are its values beside the empty one.
func (o *Output) AddFlag(cmd *cobra.Command, usage string, formats ...string) {
	o.formats = formats
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", usage)
	AddCompletion(cmd, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Validate refuses an unknown format.
func (o *Output) Validate() error {
	if o.Format == "" || slices.Contains(o.formats, o.Format) {
		return nil
	}
	known := o.formats[len(o.formats)-1]
	if others := o.formats[:len(o.formats)-1]; len(others) > 0 {
		known = strings.Join(others, ", ") + " or " + known
	}
	return fmt.Errorf("--output %s is not known: use %s, or leave the flag out", o.Format, known)
}

// Print prints an answer as JSON or YAML, or with a function in every other format.
func (o *Output) Print(out io.Writer, answer any, otherwise func(io.Writer) error) error {
	switch o.Format {
	case FormatJSON:
		return PrintJSON(out, answer)
	case FormatYAML:
		document, err := yaml.Marshal(answer)
		if err == nil {
			_, err = out.Write(document)
		}
		return err
	}
	return otherwise(out)
}

// PrintJSON prints an answer as indented JSON, with <, > and & as they are.
func PrintJSON(out io.Writer, answer any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}

// OrNone returns a text, or <none> for an empty one, as kubectl prints it.
func OrNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// Printable quotes a text with characters that would control the terminal or break a table.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
