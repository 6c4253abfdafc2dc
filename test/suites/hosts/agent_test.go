package hosts_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// agentScript stands in for the agent: these specs test its units. It counts how often it was started and has stopped.
// A registration does what the file /var/lib/registration says, and cannot write.
const agentScript = `#!/bin/sh
case $1 in
run) echo run >>/var/lib/starts; exec sleep infinity ;;
stopped) echo stopped >>/var/lib/stops ;;
register) ! touch /var/lib/written 2>/dev/null || exit 2; . /var/lib/registration ;;
esac
`

// certificate is the client certificate of the kubelet.
const certificate = ignition.KubeletPKIDirectory + "/kubelet-client-current.pem"

// agentOverlay returns the overlay of a host with the script as its agent, which a server serves.
func agentOverlay(server string) []byte {
	GinkgoHelper()
	pool := poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{PoolRole: poolv1.RoleWorker}}
	hash := fmt.Sprintf("%x", sha512.Sum512([]byte(agentScript)))
	machine, err := join.MachineOf(join.Input{
		Config: &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "host", Annotations: map[string]string{bootstrapv1.PointerIDAnnotation: "1-2"}},
			Spec:       bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}},
		},
		Pool: &pool, Pools: []poolv1.MachineConfigPool{pool},
		Registration: registration.Registration{Name: "host"},
		Cluster:      join.Cluster{Name: "edge", Server: "https://127.0.0.1:1", CA: []byte("CA\n")}, // nothing listens there
		Offer:        join.Offer{ServerURL: server, Agent: assignment.Agent{SHA512: map[string]string{"amd64": hash}}},
	}, "amd64")
	Expect(err).NotTo(HaveOccurred())
	overlay, err := machine.Overlay(join.Credential{ID: "abcdef", Secret: "0123456789abcdef"})
	Expect(err).NotTo(HaveOccurred())
	raw, err := ignition.WriteAs(overlay, "3.4.0")
	Expect(err).NotTo(HaveOccurred())
	return raw
}

var _ = Describe("The units of the agent on a host in namespaces", func() {
	It("run it when the host has booted, and register the Node before the kubelet at later boots, which never wait long for that", func(ctx SpecContext) {
		rack := newRack(ctx)
		server := newServer(ctx, rack.Address(), func(w http.ResponseWriter, _ *http.Request) {
			var packed bytes.Buffer
			writer := gzip.NewWriter(&packed)
			_, _ = writer.Write([]byte(agentScript))
			_ = writer.Close()
			_, _ = w.Write(packed.Bytes())
		})
		server.Start()
		h := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, agentOverlay(server.URL))
		property := func(unit, name string) string {
			GinkgoHelper()
			value, err := h.Run(ctx, "systemctl", "show", "--property="+name, "--value", unit)
			Expect(err).NotTo(HaveOccurred())
			return strings.TrimSpace(value)
		}
		microseconds := func(unit, name string) int {
			GinkgoHelper()
			number, err := strconv.Atoi(property(unit, name))
			Expect(err).NotTo(HaveOccurred())
			return number
		}
		starts := func() string { return readFile(ctx, h, "/var/lib/starts") }
		reboot := func(registration string) {
			GinkgoHelper()
			writeFile(ctx, h, "/var/lib/registration", registration)
			boot := h.BootID()
			_, _ = h.Run(ctx, "systemctl", "reboot") // its connection can end first
			waitForAnotherBoot(ctx, h, boot)
		}

		By("booting for the first time")
		Expect(h.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, h)
		Eventually(starts).Should(Equal("run\n"))
		Expect(h.Run(ctx, "stat", "-c", "%a %U", "/var/lib/poolboot", assignment.ProgramPath, assignment.SettingsPath)).To(Equal("700 root\n755 root\n644 root\n"))
		Expect(h.Run(ctx, "systemd-analyze", "verify", assignment.AgentUnit, assignment.RegisterUnit)).To(BeEmpty(), "systemd knows every setting")
		Expect(property(assignment.AgentUnit, "ActiveState")).To(Equal("active"))
		Expect(property(assignment.RegisterUnit, "ConditionResult")).To(Equal("no"))

		By("ending the agent")
		pid := property(assignment.AgentUnit, "MainPID")
		Expect(h.Run(ctx, "kill", "-KILL", pid)).To(BeEmpty())
		Eventually(starts).Should(Equal("run\nrun\n"))
		Expect(readFile(ctx, h, "/var/lib/stops")).To(Equal("stopped\n"), "its unit reports it, whatever ended it")

		By("rebooting when the host has joined")
		Expect(h.Run(ctx, "mkdir", "-p", ignition.KubeletPKIDirectory)).To(BeEmpty())
		writeFile(ctx, h, certificate, "a certificate\n")
		reboot("sleep 3\n")
		Eventually(starts).Should(Equal("run\nrun\nrun\n"))
		Expect(property(assignment.RegisterUnit, "Result")).To(Equal("success"))
		registered := microseconds(assignment.RegisterUnit, "ExecMainExitTimestampMonotonic")
		Expect(registered - microseconds(assignment.RegisterUnit, "ExecMainStartTimestampMonotonic")).To(BeNumerically(">=", 3_000_000))
		Expect(microseconds(ignition.KubeletUnit, "InactiveExitTimestampMonotonic")).To(BeNumerically(">=", registered))

		By("rebooting with a registration that fails")
		reboot("exit 1\n")
		Expect(property(assignment.RegisterUnit, "Result") + " " + property(assignment.RegisterUnit, "ExecMainStatus")).To(Equal("exit-code 1"))
		Expect(microseconds(ignition.KubeletUnit, "InactiveExitTimestampMonotonic")).To(BeNumerically(">", 0))

		By("rebooting with a registration that hangs")
		reboot("exec sleep infinity\n")
		Expect(property(assignment.RegisterUnit, "Result")).To(Equal("timeout"))
		Expect(microseconds(ignition.KubeletUnit, "InactiveExitTimestampMonotonic")).To(BeNumerically(">", 70_000_000))
	}, SpecTimeout(8*time.Minute))
})

func readFile(ctx context.Context, h *baremetal.Host, path string) string {
	content, _ := h.Run(ctx, "cat", path)
	return content
}

func writeFile(ctx context.Context, h *baremetal.Host, path, content string) {
	GinkgoHelper()
	Expect(h.Run(ctx, "sh", "-c", `printf %s "$2" >"$1"`, "sh", path, content)).To(BeEmpty())
}
