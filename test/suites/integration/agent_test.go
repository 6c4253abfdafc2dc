package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A host that gets an agent", func() {
	It("installs it from the config server, and has nothing to do until its pool changes", func(ctx SpecContext) {
		const program = "a program for amd64"
		directory := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(directory, "poolboot-agent-amd64"), []byte(program), 0o600)).To(Succeed())
		flags := []string{"--agent-directory=" + directory}
		s := tenant.StartSite(ctx, site.Options{Hardware: stormHardware, Neighbor: lab, Flags: site.Flags{Manager: flags, ConfigServer: flags}})
		t := tenant.New(ctx, s, 1)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		host := waitForConfiguration(ctx, t, config)

		By("downloading the program without a token")
		merged, err := host.configuration()
		Expect(err).NotTo(HaveOccurred())
		i := slices.IndexFunc(merged.Storage.Files, func(f types.File) bool { return f.Path == assignment.ProgramPath })
		Expect(i).To(BeNumerically(">=", 0))
		url := *merged.Storage.Files[i].Contents.Source
		pointer := t.Pointer(ctx, config)
		pointer.Token = ""
		code, body, err := fetch.Get(ctx, pointer, url)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusOK))
		reader, err := gzip.NewReader(bytes.NewReader(body))
		Expect(err).NotTo(HaveOccurred())
		Expect(io.ReadAll(reader)).To(BeEquivalentTo(program))
		Expect(url).To(HaveSuffix(strings.TrimPrefix(*merged.Storage.Files[i].Contents.Verification.Hash, "sha512-")))
		settings, err := fetch.File(merged, assignment.SettingsPath)
		Expect(err).NotTo(HaveOccurred())
		Expect(assignment.ReadSettings([]byte(settings))).To(And(
			HaveField("Server", "https://"+strings.Split(url, "/")[2]), HaveField("CA", Not(BeEmpty())),
			HaveField("PointerID", config.Annotations[bootstrapv1.PointerIDAnnotation])))

		By("finding its assignment, which contains what it has")
		key := client.ObjectKey{Namespace: "poolboot-system", Name: record.AssignmentName(config.UID)}
		stored := &corev1.Secret{}
		Expect(s.ManagementClient.Get(ctx, key, stored)).To(Succeed())
		document := stored.Data[bootstrapv1.AssignmentKey]
		first, err := assignment.Read(document)
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Node).To(Equal(config.Status.NodeRef.Name))
		Expect(first.Config.Name).To(Equal(config.Status.Boot.ServedConfiguration.Name))
		machine, err := ignition.Parse(first.Machine)
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{ignition.KubeletEnvPath, assignment.SettingsPath} {
			written, err := fetch.File(merged, name)
			Expect(err).NotTo(HaveOccurred())
			Expect(fetch.File(machine, name)).To(Equal(written))
		}

		By("joining with an agent that runs")
		setNode := func(change func(*corev1.Node)) {
			GinkgoHelper()
			node := t.Node(ctx, config)
			before := node.DeepCopy()
			change(node)
			Expect(lab.WorkloadClient.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
		}
		setNode(func(node *corev1.Node) {
			node.Annotations[agentv1.ReportVersionAnnotation], node.Annotations[agentv1.AgentAnnotation] = "1", "v0.1.0"
		})
		makeNodeReady(ctx, t, config)
		desired := func(ctx context.Context) (string, error) {
			err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.Update.DesiredRevision, err
		}
		Eventually(ctx, desired).Should(Equal(assignment.Revision(document)), "what an update builds is what the boot was built from")
		Eventually(ctx, func() string { return t.Node(ctx, config).Annotations[agentv1.DesiredAnnotation] }).Should(Equal(assignment.Revision(document)))
		setNode(func(node *corev1.Node) {
			node.Annotations[agentv1.CurrentAnnotation] = assignment.Revision(document)
			node.Annotations[agentv1.TargetAnnotation] = assignment.Revision(document)
			node.Annotations[agentv1.StateAnnotation] = string(agentv1.Done)
		})
		Eventually(ctx, t.Condition(config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True"))
		Consistently(ctx, desired).Should(Equal(assignment.Revision(document)))
		unchanged := &corev1.Secret{}
		Expect(s.ManagementClient.Get(ctx, key, unchanged)).To(Succeed())
		Expect(unchanged.Data).To(Equal(stored.Data))

		By("changing the pool")
		t.Create(ctx, t.MachineConfig("52-infra", "infra", "/etc/later", "later"))
		Eventually(ctx, desired).ShouldNot(Equal(assignment.Revision(document)))
		Expect(s.ManagementClient.Get(ctx, key, stored)).To(Succeed())
		second, err := assignment.Decode(stored.Data[bootstrapv1.AssignmentKey], config.Status.Update.DesiredRevision)
		Expect(err).NotTo(HaveOccurred())
		Expect(second.Config).NotTo(Equal(first.Config))
		Expect(second.Machine).To(Equal(first.Machine))

		By("deleting the Machine")
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, func() error { return s.ManagementClient.Get(ctx, key, &corev1.Secret{}) }).Should(Satisfy(apierrors.IsNotFound))
	}, SpecTimeout(6*time.Minute))
})
