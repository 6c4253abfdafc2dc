package diff

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// formatMarkdown is Markdown as GitHub and GitLab show it in comments, for a merge request.
const formatMarkdown = "markdown"

// printMarkdown prints the difference: a table of what happens, one of the hosts, and the changes. Only this function
// writes markup: what comes from files and clusters can't.
func (d difference) printMarkdown(to io.Writer) error {
	out := &strings.Builder{}
	config, reboot := d.summarize()
	fmt.Fprintf(out, "### %s\n\n| | |\n| --- | --- |\n", inline(d.title()))
	row := func(name, text string) { fmt.Fprintf(out, "| %s | %s |\n", name, inline(text)) }
	row("Config", config)
	if d.pool.Spec.IsPaused() {
		row("Paused", isPaused)
	}
	if d.pool.Spec.ConfigurationName != "" {
		row("Pinned", isPinned(&d.pool))
	}
	row("Reboot", reboot)
	for _, obstacle := range d.plan.Obstacles {
		row("Not possible", obstacle.String())
	}
	if disks := d.describeDisks(); disks != "" {
		row("Disks", disks)
	}
	row("Machines", fmt.Sprint(len(d.machines)))
	if len(d.machines) > 0 {
		out.WriteString("\n<details><summary>Machines</summary>\n\n| Machine | Effect |\n| --- | --- |\n")
		for _, machine := range d.machines {
			fmt.Fprintf(out, "| %s | %s |\n", inline(describeMachine(machine)), inline(d.effects[machine.Name]))
		}
		out.WriteString("\n</details>\n")
	}
	changes := &strings.Builder{}
	d.printChanges(changes)
	if changes.Len() > 0 {
		out.WriteString("\n<details><summary>Changes</summary>\n\n" + block(changes.String()) + "\n</details>\n")
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// inline returns text for one line of Markdown or a cell of a table: everything that can be markup, a link or the
// mention of a user is a character reference, which can't.
func inline(text string) string {
	var out strings.Builder
	for _, r := range strings.Join(strings.Fields(excerpt.Printable(text)), " ") {
		isPlain := r == ' ' || r == '/' || r == '-' || r == ',' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if isPlain || r >= utf8.RuneSelf {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, "&#%d;", r)
		}
	}
	return strings.ReplaceAll(out.String(), "www.", "www&#46;") // the beginning of a link
}

var backticks = regexp.MustCompile("`+")

// block returns text as a block of code, with a fence that the text does not have.
func block(text string) string {
	text = excerpt.Printable(text)
	fence := "```"
	for _, run := range backticks.FindAllString(text, -1) {
		if len(run) >= len(fence) {
			fence = run + "`"
		}
	}
	return fence + "text\n" + strings.TrimSuffix(text, "\n") + "\n" + fence + "\n"
}
