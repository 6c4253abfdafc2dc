package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Formats of --output.
const (
	FormatJSON = "json"
	FormatYAML = "yaml"
	// FormatWide is that of tables with all columns and whole names, and with nothing wrapped.
	FormatWide = "wide"
	// FormatName is that of names of objects for kubectl.
	FormatName = "name"
)

// None is what kubectl prints for an empty cell of a table.
const None = "<none>"

// Output is the flag --output of one command.
type Output struct {
	// Format is the value of the flag; empty for the default.
	Format  string
	formats []string
}

// AddFlag defines --output, which the command validates before it runs. byDefault is what is printed without the flag.
func (o *Output) AddFlag(cmd *cobra.Command, byDefault string, formats ...string) {
	o.formats = formats
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "format of the output, "+o.list()+"; without it, "+byDefault)
	AddCompletion(cmd, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := o.validate(); err != nil || before == nil {
			return err
		}
		return before(cmd, args)
	}
}

// AddTableFlag defines --output of a command whose answer is text with tables. further are formats beside those.
func (o *Output) AddTableFlag(cmd *cobra.Command, further ...string) {
	o.AddFlag(cmd, "text", append([]string{FormatJSON, FormatYAML, FormatWide}, further...)...)
}

// list returns the formats as text.
func (o *Output) list() string {
	last := len(o.formats) - 1
	if last == 0 {
		return o.formats[0]
	}
	return strings.Join(o.formats[:last], ", ") + " or " + o.formats[last]
}

// validate returns an error for an unknown format.
func (o *Output) validate() error {
	if o.Format == "" || slices.Contains(o.formats, o.Format) {
		return nil
	}
	return fmt.Errorf("--output %s is not known: use %s, or leave the flag out", o.Format, o.list())
}

// IsText reports whether the answer is text for people.
func (o *Output) IsText() bool { return o.Format == "" || o.Format == FormatWide }

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
	return otherwise(o.styled(out))
}

// PrintJSON prints an answer as indented JSON, with <, > and & as they are.
func PrintJSON(out io.Writer, answer any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(answer)
}

// PrintManifest prints objects for kubectl apply: as YAML documents or, in JSON, as one List.
func (o *Output) PrintManifest(out io.Writer, objects ...runtime.Object) error {
	if o.Format == FormatJSON {
		list := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
		for _, object := range objects {
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
		return PrintJSON(out, list)
	}
	printer := &printers.YAMLPrinter{}
	for _, object := range objects {
		if err := printer.PrintObj(object, out); err != nil {
			return err
		}
	}
	return nil
}

// Messages returns a writer for errors, warnings and notes. It replaces characters which would control the terminal,
// such as those in the names of objects in a file, by escapes, and wraps lines, so that they fit in 120 columns. Line
// feeds and tabs are kept.
func Messages(out io.Writer) io.Writer { return messages{out} }

type messages struct{ out io.Writer }

func (m messages) Write(text []byte) (int, error) {
	var safe strings.Builder
	for left := string(text); left != ""; {
		r, size := utf8.DecodeRuneInString(left)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&safe, `\x%02x`, left[0])
		case r == '\n', r == '\t', unicode.IsPrint(r):
			safe.WriteRune(r)
		default:
			safe.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		left = left[size:]
	}
	lines := strings.Split(safe.String(), "\n")
	for i, line := range lines {
		if runewidth.StringWidth(line) > width {
			lines[i] = strings.Join(wrap(line, width-len(continuation)), "\n"+continuation)
		}
	}
	if _, err := io.WriteString(m.out, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Printable quotes a text with characters that would control the terminal or break a table.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
