package report

import (
	"bytes"
	_ "embed"
	"html/template"
	texttemplate "text/template"
	"unicode"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"short": shorten, "css": style}).Parse(pageHTML))

// maxText is the largest number of bytes of a text that others write, so that some hosts cannot fill the page.
const maxText = 600

// shorten shortens the names of rendered configs in a text, and the text.
func shorten(text string) string { return excerpt.Line(cli.ShortenNames(text), maxText) }

// style returns the style sheet, with the colors of the charts.
func style() (template.CSS, error) {
	var out bytes.Buffer
	sheet, err := texttemplate.New("css").Parse(pageCSS)
	if err == nil {
		err = sheet.Execute(&out, colors)
	}
	return template.CSS(out.String()), err
}

func (p *page) render() ([]byte, error) {
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, p)
	return bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' { // HTML has no use for it, and a page can be printed on a terminal
			return unicode.ReplacementChar
		}
		return r
	}, out.Bytes()), err
}
