package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Color is a color of a terminal, as the number of ECMA-48.
type Color string

// Colors of states.
const (
	Red   Color = "31"
	Green Color = "32"
)

// paint returns a text in a color.
func (c Color) paint(text string) string {
	if c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// style is a writer with how tables are printed to it.
type style struct {
	io.Writer
	wide, colored bool
}

// styled returns a writer to which tables are printed as --output says.
func (o *Output) styled(out io.Writer) style {
	s := styleOf(out)
	s.wide = o.Format == FormatWide
	return s
}

// styleOf returns a writer with its style. Colors are for terminals, unless NO_COLOR is set.
func styleOf(out io.Writer) style {
	if s, ok := out.(style); ok {
		return s
	}
	return style{Writer: out, colored: terminalOf(out) != nil && os.Getenv("NO_COLOR") == ""}
}

// StyledAs returns a writer to which tables are printed as to another one.
func StyledAs(other, out io.Writer) io.Writer {
	s := styleOf(other)
	s.Writer = out
	return s
}

// terminalOf returns the terminal that a writer is, or nil. A dumb one knows no control characters.
func terminalOf(out io.Writer) *os.File {
	if isTerminal(out) && os.Getenv("TERM") != "dumb" {
		return out.(*os.File)
	}
	return nil
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
