package report

import (
	"bytes"
	_ "embed"
	"html/template"
	texttemplate "text/template"
	"unicode"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"short": cli.ShortenNames, "css": style}).Parse(pageHTML))

// style returns the style sheet, with the colors of the charts.
func style() (template.CSS, error) {
	var out bytes.Buffer
	sheet, err := texttemplate.New("css").Parse(pageCSS)
	if err == nil {
		err = sheet.Execute(&out, colors)
	}
	return template.CSS(out.String()), err
}

func render(p *page, watch bool) ([]byte, error) {
	p.Watch = watch
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, p)
	return bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' { // HTML has no use for it, and a page can be printed on a terminal
			return unicode.ReplacementChar
		}
		return r
	}, out.Bytes()), err
}
