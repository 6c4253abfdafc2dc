package status

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

type configStatus = bootstrapv1.PoolbootConfigStatus

// owners are all writers of the status of a PoolbootConfig.
var owners = []Owner{PoolbootConfig, Boot, Certificate, Node, BareMetalHost, ConfigServer, Update}

// samples are changes of one part of a status each.
var samples = map[string]func(*configStatus){
	"observedGeneration":              func(s *configStatus) { s.ObservedGeneration = 7 },
	"initialization":                  func(s *configStatus) { s.Initialization.DataSecretCreated = ptr.To(true) },
	"dataSecretName":                  func(s *configStatus) { s.DataSecretName = "other" },
	"poolRole":                        func(s *configStatus) { s.PoolRole = "other" },
	"nodeRef":                         func(s *configStatus) { s.NodeRef.UID = "other" },
	"fallbackPoolRole":                func(s *configStatus) { s.FallbackPoolRole = "other" },
	"hostRef":                         func(s *configStatus) { s.HostRef.UID = "other" },
	"hostAddresses":                   func(s *configStatus) { s.HostAddresses = []string{"192.0.2.9"} },
	"derivedNodeLabels":               func(s *configStatus) { s.DerivedNodeLabels = map[string]string{"a": "b"} },
	"requests":                        func(s *configStatus) { s.Requests.RequestedTime = at(7) },
	"reportedAddresses":               func(s *configStatus) { s.ReportedAddresses = []bootstrapv1.ReportedAddress{{Address: "192.0.2.1"}} },
	"certificate":                     func(s *configStatus) { s.Certificate.CredentialID = "other" },
	"boot.servedConfiguration":        func(s *configStatus) { s.Boot.ServedConfiguration.Name = "other" },
	"boot.hostChosenTime":             func(s *configStatus) { s.Boot.HostChosenTime = at(7) },
	"boot.preparedTime":               func(s *configStatus) { s.Boot.PreparedTime = at(7) },
	"boot.kubeletRegisteredTime":      func(s *configStatus) { s.Boot.KubeletRegisteredTime = ptr.To(metav1.Unix(7, 0)) },
	"boot.nodeReadyTime":              func(s *configStatus) { s.Boot.NodeReadyTime = at(7) },
	"boot.tokenRevokedTime":           func(s *configStatus) { s.Boot.TokenRevokedTime = at(7) },
	"boot.credentialID":               func(s *configStatus) { s.Boot.CredentialID = "other" },
	"boot.credentialExpirationTime":   func(s *configStatus) { s.Boot.CredentialExpirationTime = ptr.To(metav1.Unix(7, 0)) },
	"update.slot":                     func(s *configStatus) { s.Update.Slot = "other" },
	"update.desired":                  func(s *configStatus) { s.Update.Desired.Name = "other" },
	"update.desiredRevision":          func(s *configStatus) { s.Update.DesiredRevision = "other" },
	"update.force":                    func(s *configStatus) { s.Update.Force = "1" },
	"update.runningRevision":          func(s *configStatus) { s.Update.RunningRevision = "other" },
	"update.unansweredTime":           func(s *configStatus) { s.Update.UnansweredTime = &metav1.Time{Time: at(7).Time} },
	"update.unavailableReason":        func(s *configStatus) { s.Update.UnavailableReason = bootstrapv1.UnavailableCordoned },
	"update.agentVersion":             func(s *configStatus) { s.Update.AgentVersion = "v9" },
	"update.stage":                    func(s *configStatus) { s.Update.Stage = "Applying" },
	"update.stageTime":                func(s *configStatus) { s.Update.StageTime = &metav1.Time{Time: at(7).Time} },
	"update.registeredTime":           func(s *configStatus) { s.Update.RegisteredTime = at(7) },
	"conditions[Ready]":               condition(clusterv1.ReadyCondition, metav1.ConditionTrue),
	"conditions[Paused]":              condition(clusterv1.PausedCondition, metav1.ConditionTrue),
	"conditions[PoolDecided]":         condition(bootstrapv1.PoolDecidedCondition, metav1.ConditionTrue),
	"conditions[DataSecretAvailable]": condition(bootstrapv1.DataSecretAvailableCondition, metav1.ConditionTrue),
	"conditions[UserDataSet]":         condition(bootstrapv1.UserDataSetCondition, metav1.ConditionTrue),
	"conditions[TokenUsable]":         condition(bootstrapv1.TokenUsableCondition, metav1.ConditionTrue),
	"conditions[IgnitionSucceeded]":   condition(bootstrapv1.IgnitionSucceededCondition, metav1.ConditionTrue),
	"conditions[BootPrepared]":        condition(bootstrapv1.BootPreparedCondition, metav1.ConditionTrue),
	"conditions[NodeInPool]":          condition(bootstrapv1.NodeInPoolCondition, metav1.ConditionTrue),
	"conditions[Updated]":             condition(bootstrapv1.UpdatedCondition, metav1.ConditionTrue),
}

func at(second int64) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(time.Unix(second, 0))) }

func condition(kind string, value metav1.ConditionStatus) func(*configStatus) {
	return func(s *configStatus) {
		config := &bootstrapv1.PoolbootConfig{Status: *s}
		conditions.Set(config, metav1.Condition{Type: kind, Status: value, Reason: "Sample", Message: fmt.Sprint("since ", time.Now())})
		*s = config.Status
	}
}

// written returns a config whose status has a data Secret and a request, and these changes.
func written(changes ...func(*configStatus)) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{}
	s := &config.Status
	s.DataSecretName, s.PoolRole = "machine", "infra"
	s.Requests.Addresses = []bootstrapv1.TokenAddress{{Address: "192.0.2.1", Token: "token"}}
	for _, change := range changes {
		change(s)
	}
	return config
}

// writers returns the owners that are allowed to change one version into the next.
func writers(before, after *bootstrapv1.PoolbootConfig) (allowed []Owner) {
	GinkgoHelper()
	changed, err := changes(before, after)
	Expect(err).NotTo(HaveOccurred())
	Expect(changed).NotTo(BeEmpty())
	for _, owner := range owners {
		if owner.checkOwnership(before, after, changed) == nil {
			allowed = append(allowed, owner)
		}
	}
	return allowed
}

var _ = Describe("Each part of a PoolbootConfig's status", func() {
	It("has an owner", func() {
		var fields []string
		jsonFields := func(of any, prefix string, but ...string) {
			for field := range reflect.TypeOf(of).Fields() {
				name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
				if !slices.Contains(but, name) {
					fields = append(fields, prefix+name)
				}
			}
		}
		jsonFields(configStatus{}, "", "conditions", "boot", "update")
		jsonFields(bootstrapv1.BootStatus{}, "boot.")
		jsonFields(bootstrapv1.UpdateStatus{}, "update.")
		isField := func(path string) bool { return !strings.ContainsAny(path, "[") }
		documented := slices.DeleteFunc(slices.Collect(maps.Keys(parts)), func(path string) bool { return !isField(path) })
		Expect(documented).To(ConsistOf(fields))
	})

	for path, change := range samples {
		It("is written by no other controller: "+path, func() {
			before := written()
			after := before.DeepCopy()
			change(&after.Status)
			Expect(changes(before, after)).To(ConsistOf(path))
			c := changeOf(before, after)
			Expect(writers(before, after)).To(Equal([]Owner{parts[path].ownerOf(c)}))
			if parts[path].handover == nil {
				Expect(parts[path].ownerOf(c)).To(Equal(parts[path].owner))
			}
		})
	}

	It("has a sample in this test", func() {
		Expect(slices.Collect(maps.Keys(samples))).To(ConsistOf(slices.Collect(maps.Keys(parts))))
	})
})

var _ = DescribeTable("A part that is handed over has one owner at a time",
	func(before, after []func(*configStatus), owner Owner) {
		oldConfig, newConfig := written(before...), written(append(before, after...)...)
		Expect(writers(oldConfig, newConfig)).To(Equal([]Owner{owner}))
	},
	Entry("the pool, before a host sends a request", with(), with(samples["poolRole"]), PoolbootConfig),
	Entry("the pool, with the boot's record", with(), with(samples["poolRole"], samples["nodeRef"], samples["boot.preparedTime"]), Boot),
	Entry("the pool, once a Node is recorded", with(samples["nodeRef"]), with(samples["poolRole"]), Node),
	Entry("the pool, with a Node that was found after a move", with(), with(samples["poolRole"], samples["nodeRef"]), Node),
	Entry("the pool, with an inline data Secret that is recorded again", with(samples["nodeRef"], noDataSecret),
		with(samples["poolRole"], samples["boot.servedConfiguration"], samples["dataSecretName"]), PoolbootConfig),
	Entry("the pool of another Node, when the boot is prepared again", with(samples["nodeRef"]), with(samples["poolRole"], samples["boot.preparedTime"]), Boot),
	Entry("the configuration, once a Node is recorded", with(samples["nodeRef"], samples["update.desired"]),
		with(func(s *configStatus) { s.Boot.ServedConfiguration.Name = "third" }), Node),
	Entry("the configuration that a host was told to run", with(samples["nodeRef"], samples["update.desired"]), with(samples["boot.servedConfiguration"]), Update),
	Entry("the configuration that a host was told to run, when its boot is prepared again", with(samples["nodeRef"], samples["update.desired"]),
		with(samples["boot.servedConfiguration"], samples["boot.preparedTime"]), Boot),
	Entry("the expiration time of the credential of a host that enrolled, which has no data Secret", with(noDataSecret, credentialOnRecord),
		with(samples["boot.credentialExpirationTime"]), Boot),
	Entry("the credential, with the boot's record", with(), with(samples["boot.credentialID"], samples["boot.preparedTime"]), Boot),
	Entry("the expiration time of the credential", with(credentialOnRecord), with(samples["boot.credentialExpirationTime"]), Boot),
	Entry("the credential, when the token is revoked", with(credentialOnRecord), with(samples["boot.tokenRevokedTime"], noCredential), Node),
	Entry("the certificate of a credential", with(), with(samples["certificate"]), Certificate),
	Entry("a certificate whose record is removed", with(samples["certificate"]), with(func(s *configStatus) { s.Certificate = bootstrapv1.GrantedCertificate{} }), Boot),
	Entry("the requests of a host", with(), with(samples["requests"]), ConfigServer),
	Entry("the requests of a host that another one replaces", with(), with(samples["requests"], samples["hostRef"]), Boot),
	Entry("BootPrepared", with(), with(samples["conditions[BootPrepared]"]), Boot),
	Entry("BootPrepared that stays True, when the Node moves to another pool", with(samples["conditions[BootPrepared]"], samples["nodeRef"]),
		with(samples["conditions[BootPrepared]"], samples["poolRole"]), Node),
	Entry("BootPrepared that is no longer True", with(samples["conditions[BootPrepared]"]), with(condition(bootstrapv1.BootPreparedCondition, metav1.ConditionFalse)), Boot),
	Entry("the first NodeInPool", with(), with(samples["conditions[NodeInPool]"], samples["boot.preparedTime"]), Boot),
	Entry("every other NodeInPool", with(samples["conditions[NodeInPool]"]), with(condition(bootstrapv1.NodeInPoolCondition, metav1.ConditionFalse)), Node),
)

var _ = DescribeTable("The record of the host that has joined",
	func(owner Owner, change ...func(*configStatus)) {
		before, after := written(samples["nodeRef"]), written(append(with(samples["nodeRef"], samples["hostRef"]), change...)...)
		for _, config := range []*bootstrapv1.PoolbootConfig{before, after} {
			config.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		}
		Expect(writers(before, after)).To(Equal([]Owner{owner}))
	},
	Entry("belongs to the node controller, which finds the host again after a move", Node),
	Entry("belongs to the boot controller in the write that withdraws a boot", Boot, samples["boot.preparedTime"]),
)

var _ = DescribeTable("The credential of an inline data Secret",
	func(before []func(*configStatus), owner Owner) {
		oldConfig, newConfig := written(before...), written(append(before, samples["boot.credentialID"], samples["boot.credentialExpirationTime"])...)
		oldConfig.Spec.ConfigSource.Type, newConfig.Spec.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline, bootstrapv1.ConfigSourceTypeInline
		Expect(writers(oldConfig, newConfig)).To(Equal([]Owner{owner}))
	},
	Entry("belongs to the poolbootconfig controller until the data Secret is recorded", with(noDataSecret, credentialOnRecord), PoolbootConfig),
	Entry("belongs to the poolbootconfig controller until the credential is recorded", with(), PoolbootConfig),
	Entry("belongs to the boot controller from then on", with(credentialOnRecord), Boot),
)

func with(changes ...func(*configStatus)) []func(*configStatus) { return changes }

func noDataSecret(s *configStatus)       { s.DataSecretName = "" }
func credentialOnRecord(s *configStatus) { s.Boot.CredentialID = "abcdef" }
func noCredential(s *configStatus)       { s.Boot.CredentialID = "" }

var writesStatus = regexp.MustCompile(`\.Status\(\)\.(Patch|Update|Apply)\(`)

var _ = Describe("Other code", func() {
	It("does not write status", func() {
		const root = "../../.."
		var writers []string
		for _, folder := range []string{"bootstrap", "controllers", "cmd"} {
			Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				text, err := os.ReadFile(path)
				if writesStatus.Match(text) {
					writers = append(writers, strings.TrimPrefix(filepath.ToSlash(path), root+"/"))
				}
				return err
			})).To(Succeed())
		}
		Expect(writers).To(ConsistOf("controllers/internal/status/status.go",
			"cmd/config-server/records.go", "cmd/config-server/admissions.go", // they patch their fields by name
		))
	})
})
