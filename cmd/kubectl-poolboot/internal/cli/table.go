package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

const (
	// width is how many columns of a terminal tables and texts fit in.
	width = 120
	// continuation indents a line of a message that continues the line before.
	continuation = "  "
	// gap is the space between the columns of a table.
	gap = 3
	// minLast is the width to which the last column of a table is wrapped before others are, and minWord the one from
	// which its words are split.
	minLast, minWord = 30, 12
)

// renderedName matches the name of a rendered config: its pool, and the first digits of its hash.
var renderedName = regexp.MustCompile(`\b` + poolv1.RenderedNamePrefix + `([a-z0-9.-]+)-([0-9a-f]{8})[0-9a-f]*\b`)

// reason matches the reason of a condition.
var reason = regexp.MustCompile(`^([A-Z][a-z0-9]+)+$`)

// ShortenNames shortens the names of rendered configs in a text, such as infra@7a593f69.
func ShortenNames(text string) string { return renderedName.ReplaceAllString(text, "$1@$2") }

// Table prints rows under a header that is printed once. Cells are printable and, without a text, None. So that the
// table fits in 120 columns, they are wrapped between words, and the names of rendered configs are shortened, unless it
// is wide.
type Table struct {
	Out io.Writer
	// Header are the names of the columns; without them, there is no header.
	Header []string
	// MaxLines is how many lines a cell of the last column has at most, 0 for no limit. IsCut is true once one was cut.
	MaxLines int
	IsCut    bool
	// LongLines is true if each row has one line, however long: in the log of a pipeline, others cannot be searched.
	LongLines bool
	// MinWidths and MaxWidths are the widths that columns have at least and at most, by their names.
	MinWidths, MaxWidths map[string]int

	hasHeader bool
	// printed are the widths of the columns so far: rows that are printed later align with the earlier ones.
	printed []int
}

// Print prints rows of as many cells as the table has columns.
func (t *Table) Print(rows ...[]string) error { return t.PrintColored(rows, nil) }

// PrintColored prints rows, some cells of which have a color on a terminal: by the index of the row, and the name of
// the column.
func (t *Table) PrintColored(rows [][]string, colors []map[string]Color) error {
	style := styleOf(t.Out)
	rows = slices.Clone(rows)
	for i, row := range rows {
		rows[i] = make([]string, len(row))
		for j, cell := range row {
			if len(t.Header) > 0 && !style.wide {
				cell = ShortenNames(cell)
			}
			rows[i][j] = Printable(cmp.Or(cell, None))
		}
	}
	if len(t.Header) > 0 && !t.hasHeader {
		rows, t.hasHeader = slices.Insert(rows, 0, t.Header), true
		colors = slices.Insert(slices.Clone(colors), 0, nil)
	}
	limit, isWide := width, style.wide || t.LongLines
	if isWide {
		limit = math.MaxInt
	}
	if t.printed == nil {
		t.printed = make([]int, len(t.Header))
		for i, name := range t.Header {
			t.printed[i] = t.MinWidths[name]
		}
	}
	most := make([]int, len(t.Header))
	for i, name := range t.Header {
		if most[i] = t.MaxWidths[name]; most[i] == 0 || isWide {
			most[i] = math.MaxInt
		}
	}
	widths := fit(rows, t.printed, most, limit)
	if len(t.Header) > 0 && len(rows) > 0 {
		t.printed = widths
	}
	var out strings.Builder
	for i, row := range rows {
		cells, lines := make([][]string, len(row)), 0
		for j, cell := range row {
			cells[j] = wrap(cell, widths[j])
			if t.MaxLines > 0 && j == len(row)-1 && len(cells[j]) > t.MaxLines {
				cells[j], t.IsCut = cells[j][:t.MaxLines], true
				cells[j][t.MaxLines-1] = runewidth.Truncate(cells[j][t.MaxLines-1], widths[j]-1, "") + "…"
			}
			lines = max(lines, len(cells[j]))
		}
		for n := range lines {
			var line strings.Builder
			for j, cell := range cells {
				part := ""
				if n < len(cell) {
					part = cell[n]
				}
				padding := strings.Repeat(" ", widths[j]+gap-runewidth.StringWidth(part))
				if style.colored && part != "" && len(colors) > 0 && colors[i] != nil {
					part = colors[i][t.Header[j]].paint(part)
				}
				line.WriteString(part + padding)
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
	_, err := io.WriteString(t.Out, out.String())
	return err
}

// fit returns the widths of columns that fit in a limit. The last column shrinks first, the others below their longest
// words only if nothing else can shrink. The other columns have the least and most widths, if there are any.
func fit(rows [][]string, least, most []int, limit int) []int {
	if len(rows) == 0 {
		return nil
	}
	last := len(rows[0]) - 1
	widths, words, total := make([]int, last+1), make([]int, last+1), last*gap
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
			for word := range strings.SplitSeq(cell, " ") {
				words[i] = max(words[i], runewidth.StringWidth(word))
			}
		}
	}
	for i := range least[:min(last, len(least))] {
		widths[i], words[i] = min(max(widths[i], least[i]), most[i]), min(max(words[i], least[i]), most[i])
	}
	words[last] = min(words[last], minWord)
	for _, w := range widths {
		total += w
	}
	for ; total > limit; total-- {
		widest := -1
		for i, w := range widths {
			if w > words[i] && (widest < 0 || w >= widths[widest]) {
				widest = i
			}
		}
		if widths[last] > max(words[last], minLast) {
			widest = last
		}
		if widest < 0 {
			if widest = slices.Index(widths, slices.Max(widths)); widths[widest] <= minWord {
				break
			}
		}
		widths[widest]--
	}
	return widths
}

// Paragraph returns a printable text that is wrapped between words, so that it fits in 120 columns after a prefix on
// its first line.
func Paragraph(prefix, text string) string {
	indent := runewidth.StringWidth(prefix)
	return prefix + strings.Join(wrap(Printable(text), width-indent), "\n"+strings.Repeat(" ", indent)) + "\n"
}

// Say prints a text that is wrapped as a Paragraph.
func Say(out io.Writer, format string, args ...any) error {
	_, err := io.WriteString(out, Paragraph("", fmt.Sprintf(format, args...)))
	return err
}

// wrap splits a text between words into lines of at most some columns. Only longer words are split, paths after a
// slash, and reasons before a capital.
func wrap(text string, limit int) (lines []string) {
	line, size := "", -1
	for word := range strings.SplitSeq(text, " ") {
		length := runewidth.StringWidth(word)
		if size+1+length > limit && size >= 0 {
			lines, line, size = append(lines, line), "", -1
		}
		for length > limit {
			part := runewidth.Truncate(word, limit, "")
			if slash := strings.LastIndex(part, "/"); slash > 0 {
				part = part[:slash+1]
			} else if capital := strings.LastIndexFunc(part, unicode.IsUpper); capital > 0 && reason.MatchString(word) {
				part = part[:capital]
			}
			lines, word = append(lines, part), word[len(part):]
			length = runewidth.StringWidth(word)
		}
		if size >= 0 {
			line += " "
		}
		line, size = line+word, size+1+length
	}
	return append(lines, line)
}
