package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

func TestReport(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "kubectl poolboot report")
}

const (
	oldConfig = "rendered-%s-6db67f47c0d2428aec3e630c5a704bff"
	newConfig = "rendered-%s-1761d9954d2dd6428aec3e630c5a704b"
	rackLabel = "example.com/rack"
)

func newPool(role string) *poolv1.MachineConfigPool {
	p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: role}}
	p.Spec.ClusterName, p.Spec.PoolRole, p.Spec.Updates.FailureDomainLabel = "infra-1", role, rackLabel
	p.Status.Configuration.Name = fmt.Sprintf(newConfig, role)
	return p
}

// newHost returns the PoolbootConfig and the Node of a host, which is in one of five states.
func newHost(role string, i int, now time.Time) (*bootstrapv1.PoolbootConfig, *corev1.Node) {
	name := fmt.Sprintf("%s-%04d", role, i)
	c := clitest.PoolbootConfig(role, name, name)
	at := func(minutes int) *metav1.MicroTime {
		return &metav1.MicroTime{Time: now.Add(-time.Duration(60+i%7-minutes) * time.Minute)}
	}
	c.CreationTimestamp = metav1.Time{Time: at(0).Time}
	c.Status.HostRef = bootstrapv1.HostReference{Namespace: "edge", Name: fmt.Sprintf("rack%d-u%02d", i%4, i), UID: name}
	c.Status.Boot.HostChosenTime = at(1)
	c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.DataSecretAvailableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.DataSecretCreatedReason,
		LastTransitionTime: metav1.Time{Time: at(1).Time}}}
	if i%9 == 8 { // it boots
		c.Status.NodeRef = bootstrapv1.NodeReference{}
		c.Status.Requests.RequestedTime = at(20)
		expires := metav1.NewTime(now.Add(time.Hour))
		c.Status.Boot.CredentialExpirationTime = &expires
		return c, nil
	}
	c.Status.Requests.RequestedTime, c.Status.Boot.PreparedTime, c.Status.Requests.ServedTime, c.Status.Boot.NodeReadyTime = at(12), at(13), at(14+i%3), at(19+i%5)
	record.RevokeToken(c)
	c.Status.NodeRef.UID = name
	c.Status.Boot.ServedConfiguration.Name, c.Status.Update.Desired.Name = fmt.Sprintf(newConfig, role), fmt.Sprintf(newConfig, role)
	c.Status.Update.DesiredRevision = strings.Repeat("1", 64)
	is := metav1.Condition{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.Time{Time: at(40).Time}}
	switch i % 9 {
	case 3:
		is.Reason, is.Message = bootstrapv1.UpdateDegradedReason, "the update of Node "+name+" to "+fmt.Sprintf(newConfig, role)+
			" failed and was undone: the kubelet was not Ready within 10m: see journalctl -u kubelet.service on the host, and correct the MachineConfigs"
	case 5:
		is.Reason, is.Message = bootstrapv1.UpdateRebootingReason, "Node "+name+" reboots"
		began := metav1.NewTime(now.Add(-4 * time.Minute))
		c.Status.Update.Stage, c.Status.Update.StageTime = "Rebooting", &began
	case 6:
		is.Reason, is.Message = bootstrapv1.UpdateWaitingReason, "Node "+name+" waits for other hosts of the pool"
	default:
		is.Status, is.Reason, is.Message = metav1.ConditionTrue, bootstrapv1.UpdateDoneReason, "Node "+name+" runs it"
	}
	if is.Status == metav1.ConditionFalse {
		c.Status.Boot.ServedConfiguration.Name = fmt.Sprintf(oldConfig, role)
	}
	c.Status.Conditions = append(c.Status.Conditions, is,
		metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.NodeReadyInPoolReason, LastTransitionTime: metav1.Time{Time: at(20).Time}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{rackLabel: fmt.Sprintf("rack-%d", i%4)}}}
	if i%9 == 4 {
		c.Status.Update.OutdatedDisks = []string{"disk /dev/sdb", "filesystem /dev/sdb1"}
	}
	if i%9 == 7 {
		node.Annotations = map[string]string{agentv1.ReportVersionAnnotation: fmt.Sprint(agentv1.ReportVersion), agentv1.DriftAnnotation: "/etc/motd: Content\n/etc/chrony.conf: Missing"}
	}
	return c, node
}

// newFleet returns a cluster with hosts in some pools.
func newFleet(perPool int, roles ...string) *clitest.FakeConnection {
	now := time.Now()
	enrollment := &poolv1.Enrollment{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "site"}}
	enrollment.Spec.ExpirationTime = metav1.NewTime(now.Add(50 * time.Hour))
	controlPlane := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "control-plane-0"}}
	controlPlane.Status.CertificatesExpiryDate = metav1.NewTime(now.Add(300 * 24 * time.Hour))
	objects, nodes := []client.Object{enrollment, controlPlane}, []client.Object{}
	for _, role := range roles {
		objects = append(objects, newPool(role))
		for i := range perPool {
			config, node := newHost(role, i, now)
			objects = append(objects, config)
			if node != nil {
				nodes = append(nodes, node)
			}
		}
	}
	return &clitest.FakeConnection{WithWatch: clitest.NewFakeClientBuilder(objects...).Build(), Own: clitest.NewFakeClientBuilder(nodes...).Build()}
}

// report returns the page of a cluster.
func report(of *clitest.FakeConnection, args ...string) string {
	GinkgoHelper()
	return clitest.ExpectSuccess(clitest.RunOn(of, New, append([]string{"report"}, args...)...))
}
