package ledger

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

func TestAValueAboveItsLimitIsAnError(t *testing.T) {
	t.Setenv(updateVariable, "")
	figures, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for name, figure := range figures {
		if err := Enter(name, figure.Measured); err != nil {
			t.Error(err)
		}
		if figure.Limit == nil {
			continue
		}
		if err := Enter(name, *figure.Limit+1); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s above its limit: %v", name, err)
		}
	}
	if err := Enter("unknown", 0); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("an unknown figure: %v", err)
	}
}

// A limit far above the measured value would hide a regression.
func TestLimitsAreNearTheMeasuredValues(t *testing.T) {
	figures, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for name, figure := range figures {
		if figure.Limit != nil && *figure.Limit > 1.25*figure.Measured {
			t.Errorf("%s: the limit %.4g is more than a quarter above the measured %.4g: lower it", name, *figure.Limit, figure.Measured)
		}
	}
}

func TestEachFigureNamesWhatMeasuresIt(t *testing.T) {
	figures, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for name, figure := range figures {
		file, text, ok := strings.Cut(figure.By, ": ")
		raw, err := os.ReadFile(sourcetree.Path(file))
		if !ok || err != nil || !strings.Contains(string(raw), text) {
			t.Errorf("%s: by must be a file and a text in it, such as test/bench/render_test.go: BenchmarkRender: %q, %v", name, figure.By, err)
		} else if !regexp.MustCompile(`"` + name + `"`).Match(raw) {
			t.Errorf("%s: %s does not enter it", name, file)
		}
	}
}
