package nodelabels

import (
	"reflect"
	"strings"
	"testing"
	"unicode"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
)

// FuzzEvaluate checks rules for any expression and any host. A value that is set is a valid label value. A message has
// only printable characters and fits into a condition. The same input always has the same result.
func FuzzEvaluate(f *testing.F) {
	f.Add(`host.name.substring(0, 4).lowerAscii()`, "DLLSTXNBW02", "r7", "Dell Inc.", "7XK2P", 524288)
	f.Add(`{"DLLS": "dallas"}[host.name.substring(0, 4)]`, "HSTN", "", "", "\x1b[2J\x00", -1)
	f.Add(`host.?labels["rack"].orValue(host.hardware.serial)`, "", "a b", strings.Repeat("x", 10_000), "\xff\xfe", 0)
	f.Add(`host.hardware.disks.filter(d, d.rotational)[0].name + "%d-%s".format([host.hardware.memoryMebibytes, host.labels["rack"]])`, "n", "r", "v", "s", 1)
	f.Add(`host.labels.transformList(k, v, k + v).join("_").replace("", host.hardware.vendor)`, "n", "r", "v", "s", 1)
	f.Add(`machine.?version.orValue(cluster.name)`, "n", "r", "v", "s", 1)
	f.Fuzz(func(t *testing.T, expression, name, rack, vendor, serial string, memory int) {
		facts := NewFacts(
			&bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack, vendor: serial}}},
			&bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: vendor, SerialNumber: serial}, RAMMebibytes: memory,
				Storage: []bmov1alpha1.Storage{{Name: vendor, Rotational: memory > 5}, {Name: serial}}},
			nil, nil)
		for _, onInvalid := range []nodev1.OnInvalid{nodev1.OnInvalidBlock, nodev1.OnInvalidSanitize} {
			rule := nodev1.NodeLabelRule{Key: "k", ValueExpression: expression, OnInvalid: onInvalid}
			result := evaluate(rule, facts)
			if problems := validation.IsValidLabelValue(result.Value); problems != nil {
				t.Errorf("%q is not a valid label value: %v", result.Value, problems)
			}
			if result.Outcome != Set && result.Value != "" {
				t.Errorf("%s with value %q", result.Outcome, result.Value)
			}
			message := Blocking([]Result{{Key: "k", Outcome: Invalid, Why: result.Why}}).Error()
			if result.Why == "" || len([]rune(message)) > maxMessage || strings.ContainsFunc(message, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("message %q", message)
			}
			if again := evaluate(rule, facts); !reflect.DeepEqual(result, again) {
				t.Errorf("first %+v, then %+v", result, again)
			}
		}
	})
}
