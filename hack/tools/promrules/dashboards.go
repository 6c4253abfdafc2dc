package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// dashboard has what the check needs of a dashboard of Grafana.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []panel
}

type panel struct {
	Type, Title string
	Datasource  struct{ UID string }
	GridPos     struct{ X, Y, W, H int }
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Thresholds struct{ Steps []struct{ Color string } }
		}
	}
}

// grafanaPanels are types of panels that Grafana has without a plugin.
var grafanaPanels = []string{"bargauge", "gauge", "heatmap", "stat", "table", "timeseries"}

// observed is for how long the scraped programs are taken to have run, and scrapeInterval how often they were scraped.
const (
	observed       = time.Hour
	scrapeInterval = time.Minute
)

// scraped returns the series of files in a folder that have metrics as a program exposes them. The name of a file is
// the job. Gauges keep their value. Counters and histograms reach it from 0.
func scraped(folder string) (memory, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no files with scraped metrics: %w", folder, err)
	}
	var all memory
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		textParser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := textParser.TextToMetricFamilies(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, family := range families {
			vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnix(0)}, family)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			for _, scraped := range vector {
				of := labels.NewScratchBuilder(0)
				for name, value := range scraped.Metric {
					of.Add(string(name), string(value))
				}
				of.Add("job", strings.TrimSuffix(filepath.Base(path), ".txt"))
				of.Add("instance", path)
				of.Sort()
				var samples []chunks.Sample
				for at := time.Duration(0); at <= observed; at += scrapeInterval {
					value := float64(scraped.Value)
					if family.GetType() != dto.MetricType_GAUGE {
						value *= at.Seconds() / observed.Seconds()
					}
					samples = append(samples, sample{at, value})
				}
				all = append(all, storage.NewListSeries(of.Labels(), samples))
			}
		}
	}
	return all, nil
}

// variable matches a variable of Grafana in a query.
var variable = regexp.MustCompile(`\$(\w+)`)

// labelValues matches the query of a variable.
var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// checkDashboard checks the panels and variables of a dashboard against scraped metrics.
func checkDashboard(ctx context.Context, path string, series memory) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var of dashboard
	if err := json.Unmarshal(content, &of); err != nil {
		return err
	}
	values := map[string]string{"__rate_interval": "5m", "__range": "1h"}
	for _, declared := range of.Templating.List {
		values[declared.Name] = ".*"
	}
	var problems []error
	// expand replaces variables as Grafana does if everything is chosen.
	expand := func(query string) string {
		return variable.ReplaceAllStringFunc(query, func(reference string) string {
			value, is := values[reference[1:]]
			if !is {
				problems = append(problems, fmt.Errorf("%s: there is no variable %s", query, reference))
			}
			return value
		})
	}
	for _, declared := range of.Templating.List {
		if declared.Type != "query" {
			continue
		}
		parts := labelValues.FindStringSubmatch(declared.Query)
		if parts == nil {
			problems = append(problems, fmt.Errorf("variable %s: want label_values(SELECTOR, LABEL)", declared.Name))
		} else if err := checkQuery(ctx, "count by ("+parts[2]+") ("+expand(parts[1])+")", "{{"+parts[2]+"}}", series); err != nil {
			problems = append(problems, fmt.Errorf("variable %s: %w", declared.Name, err))
		}
	}
	for i, p := range of.Panels {
		switch {
		case !slices.Contains(grafanaPanels, p.Type):
			problems = append(problems, fmt.Errorf("%s: the type %s needs a plugin", p.Title, p.Type))
		case p.Datasource.UID != "${datasource}":
			problems = append(problems, fmt.Errorf("%s: the datasource is no variable", p.Title))
		case p.FieldConfig.Defaults.Unit == "" || len(p.FieldConfig.Defaults.Thresholds.Steps) == 0:
			problems = append(problems, fmt.Errorf("%s: there is no unit or threshold", p.Title))
		case len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24:
			problems = append(problems, fmt.Errorf("%s: there is no query, or the panel is too wide", p.Title))
		}
		for _, other := range of.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				problems = append(problems, fmt.Errorf("%s: the panel is over %s", p.Title, other.Title))
			}
		}
		for _, target := range p.Targets {
			if err := checkQuery(ctx, expand(target.Expr), target.LegendFormat, series); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", p.Title, err))
			}
		}
	}
	return errors.Join(problems...)
}

// legendLabel matches a label in the legend of a query.
var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// checkQuery evaluates a query. All metrics and labels in it must exist, and unless it selects by the value of a label,
// it must have a result. The result must have the labels of the legend.
func checkQuery(ctx context.Context, query, legend string, series memory) error {
	expression, err := parser.ParseExpr(query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	known, byValue := map[string]bool{}, false
	named := map[string]bool{}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			found := false
			for _, one := range series {
				if slices.ContainsFunc(node.LabelMatchers, func(m *labels.Matcher) bool {
					return m.Name == labels.MetricName && !m.Matches(one.Labels().Get(m.Name))
				}) {
					continue
				}
				found = true
				one.Labels().Range(func(label labels.Label) { known[label.Name] = true })
			}
			if !found {
				err = errors.Join(err, fmt.Errorf("%s: there is no metric %s", query, node))
			}
			for _, matcher := range node.LabelMatchers {
				named[matcher.Name] = true
				byValue = byValue || matcher.Name != labels.MetricName && matcher.Value != ".*" && matcher.Value != ".*/.*"
			}
		case *parser.AggregateExpr:
			for _, label := range node.Grouping {
				named[label] = true
			}
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				for _, label := range node.VectorMatching.MatchingLabels {
					named[label] = true
				}
			}
		}
		return nil
	})
	for _, label := range slices.Sorted(maps.Keys(named)) {
		if !known[label] {
			err = errors.Join(err, fmt.Errorf("%s: there is no label %s", query, label))
		}
	}
	if err != nil {
		return err
	}
	evaluation, err := engine.NewInstantQuery(ctx, series, nil, query, time.UnixMilli(0).Add(observed))
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer evaluation.Close()
	vector, err := evaluation.Exec(ctx).Vector()
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	if len(vector) == 0 && !byValue {
		return fmt.Errorf("%s: there is no result", query)
	}
	for _, label := range legendLabel.FindAllStringSubmatch(legend, -1) {
		if len(vector) > 0 && !slices.ContainsFunc(vector, func(result promql.Sample) bool { return result.Metric.Has(label[1]) }) {
			return fmt.Errorf("%s: the result has no label %s", query, label[1])
		}
	}
	return nil
}
