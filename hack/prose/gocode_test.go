package prose

import (
	"bytes"
	"regexp"
	"testing"
)

// TestGoCodeOfPagesIsTested verifies that the Go code of a page compiles and runs: each block is part of a Go file.
func TestGoCodeOfPagesIsTested(t *testing.T) {
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	sources := map[string][]byte{}
	for _, file := range filesOf(t, ".go") {
		sources[file] = read(t, file)
	}
	blocks := 0
	for _, page := range filesOf(t, ".md") {
		for _, match := range block.FindAllSubmatch(read(t, page), -1) {
			blocks++
			found := false
			for _, source := range sources {
				found = found || bytes.Contains(source, match[1])
			}
			if !found {
				t.Errorf("%s shows Go code that is in no Go file. Copy it from a test:\n%s", page, match[1])
			}
		}
	}
	if blocks == 0 {
		t.Error("no page has Go code")
	}
}
