package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// alert is an alert that is pending or fires.
type alert struct {
	since  time.Duration
	fires  bool
	labels labels.Labels
	// annotations have expanded templates.
	annotations map[string]string
}

// alerts are the alerts of one rule, by their labels.
type alerts map[string]alert

// firing returns the alerts that fire, with one text for each.
func (a alerts) firing() (texts []string) {
	for _, is := range a {
		if is.fires {
			texts = append(texts, describe(is.labels.Map(), is.annotations))
		}
	}
	slices.Sort(texts)
	return texts
}

// evaluate evaluates a rule. Each result of its expression is a pending alert, which fires once it has been a result
// for the duration in the rule.
func evaluate(ctx context.Context, series storage.Queryable, rule rulefmt.Rule, at time.Duration, before alerts) (alerts, error) {
	moment := time.UnixMilli(0).Add(at)
	query, err := engine.NewInstantQuery(ctx, series, nil, rule.Expr, moment)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	vector, err := result.Vector()
	if err != nil {
		return nil, err
	}
	active := alerts{}
	for _, sample := range vector {
		expand := func(text string) (string, error) {
			data := template.AlertTemplateData(sample.Metric.Map(), nil, "", sample)
			return template.NewTemplateExpander(ctx, "{{$labels := .Labels}}{{$value := .Value}}"+text, rule.Alert, data,
				model.Time(timestamp.FromTime(moment)), nil, nil, nil).Expand()
		}
		of := labels.NewBuilder(sample.Metric).Del(labels.MetricName).Set(labels.AlertName, rule.Alert)
		for name, text := range rule.Labels {
			value, err := expand(text)
			if err != nil {
				return nil, err
			}
			of.Set(name, value)
		}
		is := alert{since: at, labels: of.Labels(), annotations: map[string]string{}}
		for name, text := range rule.Annotations {
			if is.annotations[name], err = expand(text); err != nil {
				return nil, err
			}
		}
		key := is.labels.String()
		if _, twice := active[key]; twice {
			return nil, fmt.Errorf("two results have the labels %s", key)
		}
		if was, pending := before[key]; pending {
			is.since = was.since
		}
		is.fires = at-is.since >= time.Duration(rule.For)
		active[key] = is
	}
	return active, nil
}

// memory has series in memory, and can be queried.
type memory []storage.Series

// load parses the series of a test, in promtool's notation.
func (t test) load() (memory, error) {
	var series memory
	for _, input := range t.InputSeries {
		of, values, err := parser.ParseSeriesDesc(input.Series + " " + input.Values)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", input.Series, err)
		}
		var samples []chunks.Sample
		for i, value := range values {
			if !value.Omitted {
				samples = append(samples, sample{time.Duration(i) * time.Duration(t.Interval), value.Value})
			}
		}
		series = append(series, storage.NewListSeries(of, samples))
	}
	return series, nil
}

// Querier returns a querier of the series.
func (m memory) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, series := range m {
			if !slices.ContainsFunc(matchers, func(matcher *labels.Matcher) bool { return !matcher.Matches(series.Labels().Get(matcher.Name)) }) {
				found = append(found, series)
			}
		}
		return &set{found: found}
	}}, nil
}

// set iterates over series.
type set struct {
	found []storage.Series
	next  int
}

func (s *set) Next() bool                        { s.next++; return s.next <= len(s.found) }
func (s *set) At() storage.Series                { return s.found[s.next-1] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// sample is a value at a time.
type sample struct {
	at    time.Duration
	value float64
}

func (s sample) T() int64                      { return s.at.Milliseconds() }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
