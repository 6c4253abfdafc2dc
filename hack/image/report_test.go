package image

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	script = "31poolboot-report/report.sh"
	token  = "machine-token"
)

// configServer collects reports.
type configServer struct {
	*httptest.Server
	reports  []string
	requests atomic.Int32
	// failures is the number of requests that fail first.
	failures int32
}

func newConfigServer(t *testing.T) *configServer {
	s := &configServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case s.requests.Add(1) <= s.failures:
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil || r.Method != http.MethodPost || r.URL.Path != "/machine" || r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			s.reports = append(s.reports, string(body))
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// failed returns the initramfs of a host whose Ignition failed in a stage, with user data for a config server.
func failed(t *testing.T, stage, log string, server *configServer) *initramfs {
	t.Helper()
	for _, program := range []string{"jq", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v. What to do: apt-get install %s", err, program)
		}
	}
	pointer, err := ignition.Pointer{URL: server.URL + "/machine", Token: token,
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	i := newInitramfs(t)
	i.write("media/openstack/latest/user_data", string(pointer))
	i.write("journal", log)
	i.write("by-label/config-2", "")
	i.program("systemctl", `[[ "$*" =~ ^"--quiet is-failed ignition-"(`+stage+`).service$ ]]`)
	// Ignition prints the whole configuration to the standard error, after the error.
	i.program("journalctl", `cat "`+i.path("journal")+`"; [[ "$*" == *" --identifier=ignition _TRANSPORT=syslog" ]] || echo "Full config: `+token+`"`)
	i.program("start-network", `echo "network $1" >>"$CALLS"`)
	i.environment = append(i.environment, "LABELS="+i.path("by-label"), "START_NETWORK="+i.path("bin/start-network"))
	return i
}

func TestFailedStageIsReported(t *testing.T) {
	server := newConfigServer(t)
	i := failed(t, "disks", "create partitions\nIgnition failed: no such device\n", server)
	output, err := i.run(script)
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if len(server.reports) != 1 || server.reports[0] != "disks\ncreate partitions\nIgnition failed: no such device\n" {
		t.Errorf("reports: %q", server.reports)
	}
	if output != "Reported to the config server that Ignition failed in the stage disks\n" {
		t.Errorf("output: %s", output)
	}
	if calls := i.read("calls"); calls != "network 120\n" {
		t.Errorf("calls: %s", calls)
	}
}

// TestFirstFailureIsReported has what happens when the stage files fails and its file systems cannot be unmounted.
func TestFirstFailureIsReported(t *testing.T) {
	server := newConfigServer(t)
	i := failed(t, "mount|files", "create files\nIgnition failed: no space left on device\nStage: umount\nIgnition failed: invalid argument\n", server)
	if output, err := i.run(script); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if len(server.reports) != 1 || server.reports[0] != "files\ncreate files\nIgnition failed: no space left on device\n" {
		t.Errorf("reports: %q", server.reports)
	}
}

func TestReportHasNoConfiguration(t *testing.T) {
	server := newConfigServer(t)
	i := failed(t, "disks", "Ignition failed\n", server)
	if output, err := i.run(script); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if strings.Contains(server.reports[0], "Full config") || strings.Contains(server.reports[0], token) {
		t.Errorf("report: %q", server.reports[0])
	}
}

func TestReportHasTheEndOfALongLog(t *testing.T) {
	server := newConfigServer(t)
	i := failed(t, "fetch-offline", strings.Repeat("a line of the log\n", 1000)+"the last line\n", server)
	if output, err := i.run(script); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	report := server.reports[0]
	if len(report) > 4096 || len(report) < 3900 {
		t.Errorf("%d bytes", len(report))
	}
	if !strings.HasPrefix(report, "fetch-offline\na line of the log\n") || !strings.HasSuffix(report, "\na line of the log\nthe last line\n") {
		t.Errorf("report: %q", report)
	}
}

func TestReportIsRetried(t *testing.T) {
	server := newConfigServer(t)
	server.failures = 1
	i := failed(t, "files", "failed\n", server)
	if output, err := i.run(script); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if len(server.reports) != 1 {
		t.Errorf("reports: %q", server.reports)
	}
}

func TestReportIsSentToTheConfigServerOnly(t *testing.T) {
	server, other := newConfigServer(t), newConfigServer(t)
	i := failed(t, "files", "failed\n", server)
	// The authority of the user data did not issue this certificate: httptest's servers share one.
	user := strings.NewReplacer(server.URL, other.URL, "certificateAuthorities", "none").Replace(i.read("media/openstack/latest/user_data"))
	i.write("media/openstack/latest/user_data", user)
	i.program("curl", `for a; do [ "$a" != --cacert ] || exit 1; done; exec /usr/bin/curl "$@" --retry 0`)
	output, err := i.run(script)
	if err == nil || other.requests.Load() > 0 {
		t.Errorf("%v: %s", err, output)
	}
	if strings.Contains(output, token) {
		t.Errorf("the token is in the output: %s", output)
	}
}

func TestOtherFailuresAreNotReported(t *testing.T) {
	for name, change := range map[string]func(*initramfs){
		"no stage of Ignition failed":   func(i *initramfs) { i.program("systemctl", "exit 1") },
		"the user data is not Poolboot": func(i *initramfs) { i.write("media/openstack/latest/user_data", `{"ignition": {"version": "3.1.0"}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			server := newConfigServer(t)
			i := failed(t, "files", "failed\n", server)
			change(i)
			if output, err := i.run(script); err != nil || output != "" {
				t.Errorf("%v: %s", err, output)
			}
			if server.requests.Load() > 0 || i.exists("calls") {
				t.Error("it was reported")
			}
		})
	}
}
