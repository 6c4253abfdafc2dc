package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-analyze/charts"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// chart is a chart with bars of stacked values, drawn for narrow and for wide screens, and the same values as texts.
type chart struct {
	ID, Title, Unit string
	Legend          []entry
	Rows            []row
	Narrow, Wide    template.HTML
}

// entry is a name in a legend, and the class of its color.
type entry struct{ Name, Class string }

// row is a bar: a value for each entry of the legend.
type row struct {
	Name   string
	values []float64
	Values []string
}

// colors have a contrast of at least 3:1 to the background of the page, both light and dark, by the class in the style
// sheet.
var colors = map[string]string{
	string(updated): "#2e8b57", string(updating): "#3b7dd8", string(waiting): "#7d8590", string(booting): "#9a5fd0", string(failed): "#d9443f",
	"stage-0": "#7d8590", "stage-1": "#b5722a", "stage-2": "#3b7dd8", "stage-3": "#9a5fd0", "stage-4": "#c2528b", "stage-5": "#2e8b57",
}

// maxBars is how many hosts a chart shows, maxAllBars how many all charts of a kind show, and maxCharts how many pools
// have charts, so that the page of a large fleet can be read and is small.
const maxBars, maxAllBars, maxCharts = 20, 300, 60

// updateStages are the stages of an update, as rollout status names them, and the states before and after it.
var updateStages = []entry{{bootstrapv1.UpdateWaitingReason, "stage-0"}, {bootstrapv1.UpdateDrainingReason, "stage-1"}, {bootstrapv1.UpdateApplyingReason, "stage-2"},
	{bootstrapv1.UpdateRebootingReason, "stage-3"}, {bootstrapv1.UpdateVerifyingReason, "stage-4"}, {"needs you to act", string(failed)}}

// addCharts adds the charts of the boots and the updates of the hosts of a pool, one of some pools with charts.
func (p *page) addCharts(of *pool, pools int, now time.Time) {
	var stages []entry
	for i, stage := range record.Stages() {
		stages = append(stages, entry{string(stage), fmt.Sprintf("stage-%d", i)})
	}
	var began, changed []*host
	for _, h := range of.hosts {
		if h.stage != record.StageDeleting {
			began = append(began, h)
		}
		if h.stage.IsAfterBoot() {
			if h.Kind != updated && !h.since.IsZero() {
				changed = append(changed, h)
			}
		}
	}
	slices.SortStableFunc(began, func(a, b *host) int {
		return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), b.of.CreationTimestamp.Compare(a.of.CreationTimestamp.Time))
	})
	slices.SortStableFunc(changed, func(a, b *host) int { return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), a.since.Compare(b.since)) })
	limit := max(min(maxBars, maxAllBars/pools), 1)
	name := cmp.Or(of.Pool, "no pool")
	boots := make([]row, min(len(began), limit))
	for i := range boots {
		took := record.StageDurations(began[i].of)
		if stage := began[i].stage; !stage.IsAfterBoot() {
			_, since := record.StageOf(began[i].of)
			took[stage] = now.Sub(since)
		}
		boots[i].Name = began[i].Name
		for _, stage := range record.Stages() {
			boots[i].values = append(boots[i].values, max(took[stage].Seconds(), 0))
		}
	}
	p.BootChart = appendChart(p.BootChart, "boots-"+of.ID, title("Boots", name, len(boots), len(began)), stages, boots)
	bars := make([]row, min(len(changed), limit))
	for i := range bars {
		h := changed[i]
		stage := max(slices.IndexFunc(updateStages, func(e entry) bool {
			return e.Name == h.State || e.Name == bootstrapv1.UpdateRebootingReason && h.State == bootstrapv1.UpdateApplyingFirmwareReason
		}), 0)
		if h.Kind == failed {
			stage = len(updateStages) - 1
		}
		bars[i] = row{Name: h.Name, values: make([]float64, len(updateStages))}
		bars[i].values[stage] = max(now.Sub(h.since).Seconds(), 0)
	}
	p.StageChart = appendChart(p.StageChart, "updates-"+of.ID, title("Updates", name, len(bars), len(changed)), updateStages, bars)
}

// rank is the place of a kind in charts: what needs a person or happens now is first.
func rank(k kind) int { return slices.Index([]kind{failed, booting, updating, waiting, updated}, k) }

func title(what, pool string, shown, all int) string {
	if shown == all {
		return what + " of " + pool
	}
	return fmt.Sprintf("%s of %s, %d of %d hosts", what, pool, shown, all)
}

// appendChart appends a chart of times in seconds, unless it has no bars.
func appendChart(charts []*chart, id, title string, legend []entry, rows []row) []*chart {
	if len(rows) == 0 {
		return charts
	}
	longest := 0.0
	for _, r := range rows {
		sum := 0.0
		for _, v := range r.values {
			sum += v
		}
		longest = max(longest, sum)
	}
	unit, seconds := "seconds", 1.0
	for _, u := range []struct {
		name    string
		seconds float64
	}{{"minutes", 60}, {"hours", 3600}, {"days", 86400}} {
		if longest >= 2*u.seconds {
			unit, seconds = u.name, u.seconds
		}
	}
	for _, r := range rows {
		for i := range r.values {
			r.values[i] /= seconds
		}
	}
	return append(charts, newChart(id, title, unit, legend, rows))
}

func (p *page) addPoolChart(pools int) {
	var rows []row
	for _, of := range p.Pools {
		if of.rank >= pools {
			continue
		}
		r := row{Name: cmp.Or(of.Pool, "no pool")}
		for _, k := range kinds {
			r.values = append(r.values, float64(count(of.hosts, k.Class)))
		}
		rows = append(rows, r)
	}
	if len(rows) > 0 {
		title := "Hosts of each pool"
		if len(rows) < len(p.Pools) {
			title = fmt.Sprintf("Hosts of %d of %d pools", len(rows), len(p.Pools))
		}
		p.PoolChart = newChart("pools-chart", title, "hosts", kinds, rows)
	}
}

// newChart draws a chart.
func newChart(id, title, unit string, legend []entry, rows []row) *chart {
	c := &chart{ID: id, Title: title, Unit: unit, Rows: rows}
	for i := range rows {
		for _, v := range rows[i].values {
			rows[i].Values = append(rows[i].Values, formatValue(v))
		}
	}
	c.Legend = legend
	c.Narrow, c.Wide = draw(legend, rows, 320, 16), draw(legend, rows, 720, 36)
	return c
}

// formatValue returns a value with at most one decimal.
func formatValue(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// draw returns an SVG of a width. Names are cut after some characters.
func draw(legend []entry, rows []row, width, limit int) template.HTML {
	// The last series has a zero: without one, the library begins the axis below zero.
	values, names := make([][]float64, len(legend)+1), make([]string, len(rows))
	for i, r := range slices.Backward(rows) { // the library begins at the bottom
		name := []rune(cli.Printable(r.Name))
		if len(name) > limit {
			name = append(name[:limit-1], '…')
		}
		names[len(rows)-1-i] = string(name)
		for j, v := range r.values {
			if v == 0 {
				v = charts.GetNullValue() // no empty bar
			}
			values[j] = append(values[j], v)
		}
		values[len(legend)] = append(values[len(legend)], charts.GetNullValue())
	}
	values[len(legend)][0] = 0
	theme := charts.GetTheme(charts.ThemeLight).WithBackgroundColor(charts.ColorTransparent)
	var series []charts.Color
	for _, e := range legend {
		series = append(series, charts.ParseColor(colors[e.Class]))
	}
	font := charts.FontStyle{FontSize: 10.5}
	option := charts.NewBarChartOptionWithData(values)
	option.Theme, option.Horizontal, option.StackSeries = theme.WithSeriesColors(series), true, ptr.To(true)
	option.Legend.Show, option.Padding = ptr.To(false), charts.NewBox(0, 4, 12, 4)
	option.CategoryAxis.Labels, option.CategoryAxis.LabelFontStyle, option.CategoryAxis.LabelCount = names, font, len(names)
	option.ValueAxis = []charts.ValueAxisOption{{Min: ptr.To(0.0), Unit: 1, LabelFontStyle: font}}
	option.ValueFormatter = formatValue
	painter := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: width, Height: 24*len(rows) + 44})
	if err := painter.BarChart(option); err != nil {
		return template.HTML(template.HTMLEscapeString(err.Error()))
	}
	svg, err := painter.Bytes()
	if err != nil {
		return template.HTML(template.HTMLEscapeString(err.Error()))
	}
	return template.HTML(bytes.ReplaceAll(svg, []byte("\n"), []byte(" "))) // the library escapes texts
}
