package nodelabels_test

import (
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
)

// seeds are expressions whose program is much larger than their text, and typical expressions.
var seeds = []string{
	``, `a`, `^[a-z]{6}[a-z0-9]{5}$`, `(?:(?:a?){30}){30}`, `^(?:(?:a?){1000})$`, `a{0}`, `a{3,}`, `(a|b|){2,5}c*?`, `(?i)straße`, `\pL+`,
	`((a*)*)*`, `(a+)+b`, `[^\x00]{10}|^$|\b\B`, `(?:){1000}`, `(|a)*`, `(|a)+`, `(?s).*`, `^(a)$|b`,
}

func TestMeasureIsNeverLessThanTheProgram(t *testing.T) {
	for _, expression := range seeds {
		checkInstructions(t, expression)
	}
}

func FuzzMeasure(f *testing.F) {
	for _, expression := range seeds {
		f.Add(expression)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if len(expression) < 200 {
			checkInstructions(t, expression)
		}
	})
}

func checkInstructions(t *testing.T, expression string) {
	t.Helper()
	measure, err := nodelabels.MeasureRegexp(expression)
	parsed, parseErr := syntax.Parse(expression, syntax.Perl)
	if (err != nil) != (parseErr != nil) {
		t.Fatalf("%q: got error %v, want %v", expression, err, parseErr)
	}
	if err != nil || measure.Instructions > 100_000 { // too large to compile here
		return
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := measure.Instructions, len(program.Inst); got < want {
		t.Errorf("%q: measured %d instructions, its program has %d", expression, got, want)
	}
}

func TestMeasure(t *testing.T) {
	for _, test := range []struct {
		expression string
		longest    int
		anchored   bool
	}{
		{`^nvme`, 4, true},
		{`nvme`, 4, false},
		{`^(?:a|bcd)[0-9]{2,5}$`, 8, true},
		{`^(^a)`, 1, true},
		{`^a|b`, 1, false},
		{`^a+`, nodelabels.Unlimited, true},
		{`^(?:)*$`, 0, true},
		{`a{2,}`, nodelabels.Unlimited, false},
		{`(?m)^a`, 1, false},
	} {
		got, err := nodelabels.MeasureRegexp(test.expression)
		if err != nil || got.Longest != test.longest || got.Anchored != test.anchored {
			t.Errorf("%q: got %+v, %v; want the longest match %d, anchored %v", test.expression, got, err, test.longest, test.anchored)
		}
	}
	if _, err := nodelabels.MeasureRegexp("("); err == nil || !strings.Contains(err.Error(), "missing closing )") {
		t.Errorf("got %v for an expression that is none", err)
	}
}

func TestSteps(t *testing.T) {
	prefix, err := nodelabels.MeasureRegexp(`^nvme`)
	if err != nil {
		t.Fatal(err)
	}
	if got := prefix.Steps(1024); got > 100 {
		t.Errorf("an anchored literal takes %d steps in a long text", got)
	}
	backs, err := nodelabels.MeasureRegexp(`a.*b|a`)
	if err != nil {
		t.Fatal(err)
	}
	if got := backs.StepsOfAll(1000, 1000); got < 1000*1000 {
		t.Errorf("each match may look ahead to the end: got %d steps", got)
	}
	if got := backs.StepsOfAll(1000, 2); got > 1000*200 {
		t.Errorf("two matches take %d steps", got)
	}
}
