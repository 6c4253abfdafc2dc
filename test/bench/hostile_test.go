package bench

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/vincent-petithory/dataurl"
	"k8s.io/apimachinery/pkg/runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
)

// listOf returns items in JSON with size bytes in all.
func listOf(size int, item func(i int) string) string {
	var list strings.Builder
	for i := 0; list.Len() < size; i++ {
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(item(i))
	}
	return list.String()
}

// documentOf returns Ignition with one list.
func documentOf(section, list, items string) string {
	return `{"ignition":{"version":"3.5.0"},"` + section + `":{"` + list + `":[` + items + `]}}`
}

// butaneFiles returns Butane with a number of files.
func butaneFiles(number int) string {
	text := &strings.Builder{}
	text.WriteString("variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n")
	for i := range number {
		fmt.Fprintf(text, "    - path: /opt/%d\n      mode: 0644\n", i)
	}
	return text.String()
}

// BenchmarkHostile measures the processor time of the webhook for the largest MachineConfigs that it accepts, each of
// another shape that a user can choose. "cpu-ms/op" is without the API server.
func BenchmarkHostile(b *testing.B) {
	const whole = pool.MaxSize - 1024
	packed := &bytes.Buffer{}
	writer := gzip.NewWriter(packed)
	_, _ = writer.Write(bytes.Repeat([]byte("KUBELET_ \"quoted\" hostname --no\\de # text\n"), 190_000))
	_ = writer.Close()
	for _, of := range []struct{ name, document string }{
		{"links", documentOf("storage", "links", listOf(70_000, func(i int) string { return fmt.Sprintf(`{"path":"/opt/%d","target":"/opt"}`, i) }))},
		{"files", documentOf("storage", "files", listOf(whole, func(i int) string { return fmt.Sprintf(`{"path":"/opt/%d"}`, i) }))},
		{"paths", documentOf("storage", "files", listOf(whole, func(i int) string { return fmt.Sprintf(`{"path":"/opt/%s%d"}`, strings.Repeat("a/", 2000), i) }))},
		{"units", documentOf("systemd", "units", listOf(whole, func(i int) string {
			return fmt.Sprintf(`{"name":"a%d.service","enabled":true,"contents":"[Install]\nAlso=a%d.service\n"}`, i, i+1)
		}))},
		{"instances", documentOf("systemd", "units", `{"name":"a@.service","contents":"[Unit]"},`+listOf(whole, func(i int) string { return fmt.Sprintf(`{"name":"a@%d.service","enabled":true}`, i) }))},
		{"drop-ins", documentOf("systemd", "units", `{"name":"a.service","dropins":[`+listOf(whole, func(i int) string { return fmt.Sprintf(`{"name":"%d.conf","contents":"[Unit]"}`, i) })+`]}`)},
		{"settings", documentOf("systemd", "units", `{"name":"kubelet.service","dropins":[{"name":"1.conf","contents":`+strconv.Quote("[Service]\n"+strings.Repeat("Environment=A=b\n", whole/18))+`}]}`)},
		{"continued", documentOf("systemd", "units", `{"name":"a.mount","contents":`+strconv.Quote("[Mount]\nWhere=/a\nA="+strings.Repeat("\\\n", whole/5)+"b\n")+`}`)},
		{"gzip", documentOf("storage", "files", `{"path":"/opt/a","contents":{"compression":"gzip","source":"`+dataurl.EncodeBytes(packed.Bytes())+`"}}`)},
		{"old-spec", strings.Replace(documentOf("storage", "files", listOf(200_000, func(i int) string { return fmt.Sprintf(`{"filesystem":"root","path":"/opt/%05d"}`, i) })), "3.5.0", "2.2.0", 1)},
		{"butane", butaneFiles(1600)},
		{"keys", documentOf("passwd", "users", `{"name":"a","sshAuthorizedKeys":[`+listOf(whole, func(i int) string { return fmt.Sprintf(`"a%d"`, i) })+`]}`)},
	} {
		b.Run(of.name, func(b *testing.B) {
			spec := poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: []byte(of.document)}}
			if !strings.HasPrefix(of.document, "{") {
				spec = poolv1.MachineConfigSpec{Butane: of.document}
			}
			config := &poolv1.MachineConfig{Spec: spec}
			start := processorTime(b)
			for b.Loop() {
				if _, errs := validation.MachineConfig(config); len(errs) > 0 {
					b.Fatalf("%.300s", errs.ToAggregate().Error())
				}
			}
			b.ReportMetric(float64((processorTime(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkPrediction measures the plan for growing numbers of units that all change and name each other with Also.
// "cpu-ns/unit" is constant if the time is proportional to their number.
func BenchmarkPrediction(b *testing.B) {
	configOf := func(count int, description string) update.Config {
		items := make([]string, count)
		for i := range items {
			items[i] = fmt.Sprintf(`{"name":"a%d.service","enabled":true,"contents":"[Unit]\nDescription=%s\n[Install]\nAlso=a%d.service\n"}`, i, description, i+1)
		}
		config, err := ignition.Parse([]byte(documentOf("systemd", "units", strings.Join(items, ","))))
		if err != nil {
			b.Fatal(err)
		}
		return update.Config{Ignition: config}
	}
	for _, count := range []int{1000, 4000, 16000} {
		b.Run(fmt.Sprintf("units=%d", count), func(b *testing.B) {
			before, after := configOf(count, "a"), configOf(count, "b")
			start := processorTime(b)
			for b.Loop() {
				update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
			}
			b.ReportMetric(float64(processorTime(b)-start)/float64(b.N)/float64(count), "cpu-ns/unit")
		})
	}
}
