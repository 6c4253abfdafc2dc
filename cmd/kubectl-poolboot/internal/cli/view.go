package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// AddWatchFlag defines --watch.
func AddWatchFlag(cmd *cobra.Command, watch *bool, end string) {
	cmd.Flags().BoolVarP(watch, "watch", "w", false, "watch for changes until "+end)
}

// Row is a state that a View prints.
type Row struct {
	// Key identifies the row and sorts it.
	Key string
	// Object is the row as JSON and YAML have it, and Name as --output name has it, "" for none. A row changes with
	// its object.
	Object any
	Name   string
	// Cells are those of the table, and Colors those of its columns.
	Cells  []string
	Colors map[string]Color
}

// View prints states in the format of --output: once or, with --watch, whenever they change. Then JSON has a line, and
// YAML a document for each change. A table has a line with the time for each; on a terminal that it fits into, it is
// printed in its place instead.
type View struct {
	Out    io.Writer
	Output *Output
	Watch  bool
	Header []string
	// MaxLines is that of the Table on a terminal: in a file, nothing is cut. IsCut is true once a cell was cut.
	MaxLines int
	IsCut    bool
	// MinWidths are those of the Table with --watch: most cells come later. MaxWidths are always those of the Table.
	MinWidths, MaxWidths map[string]int

	// seen are the rows that were shown, as JSON.
	seen  map[string]string
	rows  map[string]Row
	lines *Table
	// drawn is the table on the terminal. isTooLong is true once it has not fit into it.
	drawn     string
	isTooLong bool
}

// redrawInterval is how often a table on a terminal is printed again for the times since something.
const redrawInterval = 10 * time.Second

// Show prints rows: all or, with --watch, those that have changed.
func (v *View) Show(rows ...Row) error {
	if v.Watch {
		rows = v.changed(rows)
		if isDrawn, err := v.draw(); isDrawn || err != nil || len(rows) == 0 {
			return err
		}
	}
	if v.Output.Format == FormatName {
		for _, r := range rows {
			if r.Name == "" {
				continue
			}
			if _, err := fmt.Fprintln(v.Out, Printable(r.Name)); err != nil {
				return err
			}
		}
		return nil
	}
	if v.Watch && !v.Output.IsText() {
		return v.printObjects(rows)
	}
	objects := make([]any, len(rows))
	for i, r := range rows {
		objects[i] = r.Object
	}
	return v.Output.Print(v.Out, objects, func(out io.Writer) error {
		if v.lines == nil {
			v.lines = &Table{Out: out, Header: v.Header, MaxWidths: v.MaxWidths}
			if isTerminal(v.Out) {
				v.lines.MaxLines = v.MaxLines
			} else {
				v.lines.LongLines = v.Watch
			}
			if v.Watch {
				v.lines.Header, v.lines.MinWidths = append([]string{"TIME"}, v.Header...), v.MinWidths
			}
		}
		defer func() { v.IsCut = v.IsCut || v.lines.IsCut }()
		return printRows(v.lines, v.Watch, rows)
	})
}

// Forget removes a row, so that it is not printed again.
func (v *View) Forget(key string) {
	delete(v.seen, key)
	delete(v.rows, key)
}

// Refresh fires when all rows should be shown again, for the times since something in a table on a terminal.
func (v *View) Refresh() <-chan time.Time {
	if v.drawn == "" || v.isTooLong {
		return nil
	}
	return time.After(redrawInterval)
}

// changed returns the rows that were not shown as they are.
func (v *View) changed(rows []Row) (changed []Row) {
	if v.seen == nil {
		v.seen, v.rows = map[string]string{}, map[string]Row{}
	}
	for _, r := range rows {
		text, err := json.Marshal(r.Object)
		if last, ok := v.seen[r.Key]; !ok || err != nil || last != string(text) {
			changed = append(changed, r)
		}
		v.seen[r.Key], v.rows[r.Key] = string(text), r
	}
	return changed
}

// colorCodes matches what changes the color of a text.
var colorCodes = regexp.MustCompile(`\x1b\[\d+m`)

// draw prints the table in its place on a terminal, if it fits into it.
func (v *View) draw() (isDrawn bool, err error) {
	terminal := terminalOf(v.Out)
	if v.isTooLong || terminal == nil || !v.Output.IsText() {
		return false, nil
	}
	columns, lines, _ := term.GetSize(int(terminal.Fd())) // nothing fits into one of an unknown size
	heightOf := func(text string) (height int) {
		for line := range strings.Lines(colorCodes.ReplaceAllString(text, "")) {
			height += (runewidth.StringWidth(line)-2)/max(columns, 1) + 1
		}
		return height
	}
	var text bytes.Buffer
	rows := slices.SortedFunc(maps.Values(v.rows), func(a, b Row) int { return cmp.Compare(a.Key, b.Key) })
	table := &Table{Out: StyledAs(v.Output.styled(v.Out), &text), Header: v.Header, MaxLines: v.MaxLines, MaxWidths: v.MaxWidths}
	if err := printRows(table, false, rows); err != nil {
		return false, err
	}
	v.IsCut = v.IsCut || table.IsCut
	if v.isTooLong = heightOf(text.String()) >= lines; v.isTooLong {
		return false, nil
	}
	clear := ""
	if v.drawn != "" {
		clear = fmt.Sprintf("\x1b[%dA\r\x1b[J", heightOf(v.drawn))
	}
	v.drawn = text.String()
	_, err = io.WriteString(v.Out, clear+v.drawn)
	return true, err
}

// printObjects prints each changed object as one line of JSON or one document of YAML.
func (v *View) printObjects(rows []Row) error {
	for _, r := range rows {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		err := encoder.Encode(r.Object)
		if err == nil && v.Output.Format == FormatYAML {
			var document []byte
			document, err = yaml.JSONToYAML(text.Bytes())
			text = *bytes.NewBufferString("---\n" + string(document))
		}
		if err == nil {
			_, err = v.Out.Write(text.Bytes())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printRows prints the cells of rows, with the time before them if they are watched.
func printRows(table *Table, withTime bool, rows []Row) error {
	cells, colors := make([][]string, len(rows)), make([]map[string]Color, len(rows))
	for i, r := range rows {
		if cells[i], colors[i] = r.Cells, r.Colors; withTime {
			cells[i] = append([]string{time.Now().Format(time.TimeOnly)}, r.Cells...)
		}
	}
	return table.PrintColored(cells, colors)
}
