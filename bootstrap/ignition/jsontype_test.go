package ignition_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

type embedded struct {
	Kind string `json:"kind"`
}

type document struct {
	embedded `json:",inline"`
	Items    []struct {
		Size  *resource.Quantity `json:"size"`
		Count int32              `json:"count"`
	} `json:"items"`
	Labels  map[string]string   `json:"labels"`
	Percent *intstr.IntOrString `json:"percent"`
	Any     any                 `json:"any"`
}

func TestFindsEveryMistake(t *testing.T) {
	for _, c := range []struct{ text, path, message string }{
		{"kind: 5", "kind", "must be a string, not 5: quote it"},
		{"items: a", "items", `must be a list, not the string "a"`},
		{"items: [a]", "items[0]", `must be an object, not the string "a"`},
		{"items: [{}, {size: 1Zi}]", "items[1].size", `must be a quantity, as 500m or 1Gi, not the string "1Zi"`},
		{"items: [{count: 2.5}]", "items[0].count", "must be a whole number, not 2.5"},
		{"items: [{count: 3000000000}]", "items[0].count", "must be a whole number from -2147483648 to 2147483647, not 3000000000"},
		{"labels: {a.b/c: true}", "labels[a.b/c]", "must be a string, not true: quote it"},
		{"labels: [a]", "labels", "must be an object, not a list"},
		{"percent: {}", "percent", "must be a whole number or a string, not an object"},
		{"[a]", "", "must be an object, not a list"},
	} {
		var value any
		raw, err := yaml.YAMLToJSON([]byte(c.text))
		if err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &value)
		}
		if err != nil {
			t.Fatal(err)
		}
		found := ignition.FindMistakes(value, reflect.TypeFor[document](), false)
		if len(found) != 1 || found[0].Path != c.path || found[0].Message != c.message {
			t.Errorf("%s: got %+v, want %s: %s", c.text, found, c.path, c.message)
		}
	}
}

func TestRefusesWholeNumbersThatDecodersRefuse(t *testing.T) {
	for _, number := range []any{json.Number("420.0"), json.Number("1e2"), 100.0} {
		want := fmt.Sprintf("must be a whole number without fraction and exponent, not %v", number)
		found := ignition.FindMistakes(map[string]any{"items": []any{map[string]any{"count": number}}}, reflect.TypeFor[document](), false)
		if len(found) != 1 || found[0].Message != want {
			t.Errorf("got %+v, want %s", found, want)
		}
	}
}

func TestFindsUnknownFields(t *testing.T) {
	value := map[string]any{"Kind": "a", "lables": map[string]any{}, "something": int64(1), "any": []any{int64(1)}, "items": nil}
	found := ignition.FindMistakes(value, reflect.TypeFor[document](), false)
	if len(found) != 3 || found[0].Nearest != "kind" || found[1].Nearest != "labels" || found[2].Nearest != "" || !found[2].Unknown {
		t.Errorf("got %+v", found)
	}
	if found := ignition.FindMistakes(value, reflect.TypeFor[document](), true); len(found) != 2 {
		t.Errorf("got %+v in any case", found)
	}
}
