package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

const (
	maxExcerpt = 200 // lines
	maxLine    = 400 // bytes
)

// excerpt keeps the output of failed tests, without their logs.
type excerpt struct {
	block    []string // lines since the last separator of Ginkgo
	failed   bool     // the block is that of a failed spec
	timeline bool     // the next line is in the logs of the spec
	kept     []string
}

var (
	headline = regexp.MustCompile(`^(--- FAIL|FAIL|panic:|fatal error:)|DATA RACE|^make:.*Error`)
	mark     = regexp.MustCompile(`\[(FAILED|TIMEDOUT|PANICKED|INTERRUPTED)\]`)
)

func (e *excerpt) line(text string) {
	text = strings.TrimRight(escapes.ReplaceAllString(text, ""), "\r\n")
	if headline.MatchString(text) {
		e.keep(text)
	}
	switch {
	case strings.HasPrefix(text, "-----------"):
		if e.failed {
			e.keep(e.block...)
		}
		e.block, e.failed, e.timeline = nil, false, false
		return
	case strings.HasPrefix(strings.TrimSpace(text), "Timeline >>"):
		e.timeline = true
	case strings.HasPrefix(strings.TrimSpace(text), "<< Timeline"):
		e.timeline = false
		return
	}
	if e.timeline {
		return
	}
	e.failed = e.failed || mark.MatchString(text)
	e.block = append(e.block, text[:min(len(text), maxLine)])
	if extra := len(e.block) - maxExcerpt; extra > 0 {
		e.block = e.block[extra:]
	}
}

func (e *excerpt) keep(lines ...string) {
	e.kept = append(e.kept, lines...)
	if extra := len(e.kept) - maxExcerpt; extra > 0 {
		e.kept = e.kept[extra:]
	}
}

func (e *excerpt) print(out io.Writer) {
	for _, text := range e.kept {
		fmt.Fprintln(out, text)
	}
}
