package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	kjson "sigs.k8s.io/json"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// tlsProfile is what a TLS security profile of OpenShift means for the kubelet.
type tlsProfile struct {
	minVersion string
	ciphers    []string // names of OpenSSL
}

// suites are the cipher suites that a kubelet has, by their names in OpenSSL and in a KubeletConfiguration. Those of
// OpenShift's predefined profiles are first, in the order of the profiles.
var suites = [][2]string{
	{"TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"},
	{"TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"},
	{"TLS_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"},
	{"ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
	{"ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
	{"ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
	{"ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
	{"ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"},
	{"ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"},
	{"ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"},
	{"ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"},
	{"ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"},
	{"ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"},
	{"ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"},
	{"ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"},
	{"AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"},
	{"AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"},
	{"AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"},
	{"AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"},
	{"AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"},
	{"DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"},
	{"ECDHE-RSA-DES-CBC3-SHA", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"},
}

// predefined returns a profile with the first cipher suites.
func predefined(minVersion string, count int) (profile tlsProfile) {
	for _, suite := range suites[:count] {
		profile.ciphers = append(profile.ciphers, suite[0])
	}
	profile.minVersion = minVersion
	return profile
}

// tlsProfiles are OpenShift's predefined profiles, with the cipher suites that a kubelet has: Go has none with DHE.
var tlsProfiles = map[string]tlsProfile{"Old": predefined("VersionTLS10", 21), "Intermediate": predefined("VersionTLS12", 9), "Modern": predefined("VersionTLS13", 3)}

// customTLSProfile is the type of a profile with its own version and cipher suites.
const customTLSProfile = "Custom"

// tlsSecurityProfile is a TLS security profile of OpenShift. Only Custom has settings.
type tlsSecurityProfile struct {
	Type         string   `json:"type"`
	Old          struct{} `json:"old"`
	Intermediate struct{} `json:"intermediate"`
	Modern       struct{} `json:"modern"`
	Custom       *struct {
		MinTLSVersion string   `json:"minTLSVersion"`
		Ciphers       []string `json:"ciphers"`
	} `json:"custom"`
}

// readTLSProfile reads a TLS security profile. It refuses values of the wrong type and keys that custom does not have,
// and leaves out other keys.
func readTLSProfile(raw map[string]any, at *field.Path, leaveOut func(path, why string)) (read tlsSecurityProfile, errs field.ErrorList) {
	for _, mistake := range ignition.FindMistakes(raw, reflect.TypeFor[tlsSecurityProfile](), false) {
		path := field.NewPath(at.String() + "." + mistake.Path)
		correct := "OpenShift has no such field: "
		if mistake.Nearest != "" {
			correct += "correct its name to " + mistake.Nearest + ", or "
		}
		correct += "remove it"
		switch {
		case mistake.Unknown && strings.HasPrefix(mistake.Path, "custom."):
			errs = append(errs, field.Invalid(path, field.OmitValueType{}, correct+": custom has minTLSVersion and ciphers"))
		case mistake.Unknown:
			leaveOut(at.String()+"."+mistake.Path, correct)
		case mistake.Path == "custom.minTLSVersion":
			errs = append(errs, field.NotSupported(path, mistake.Value, cliflag.TLSPossibleVersions()))
		default:
			errs = append(errs, field.TypeInvalid(path, field.OmitValueType{}, mistake.Message))
		}
	}
	if len(errs) == 0 {
		text, err := json.Marshal(raw)
		utilruntime.Must(err) // it was read from JSON
		utilruntime.Must(kjson.UnmarshalCaseSensitivePreserveInts(text, &read))
	}
	return read, errs
}

// setTLSProfile sets the fields of a kubelet section for a TLS security profile. Fields that the section has already
// are kept, as in OpenShift. It returns what is wrong with the profile.
func setTLSProfile(section, raw map[string]any, leaveOut func(path, why string)) field.ErrorList {
	at := field.NewPath("spec", "tlsSecurityProfile")
	profile, errs := readTLSProfile(raw, at, leaveOut)
	if len(errs) > 0 {
		return errs
	}
	of, predefined := tlsProfiles[cmp.Or(profile.Type, "Intermediate")] // OpenShift's default
	custom := profile.Custom
	switch {
	case profile.Type == "" && custom != nil:
		return field.ErrorList{field.Required(at.Child("type"), fmt.Sprintf("the profile has custom: set the type %s, or remove custom", customTLSProfile))}
	case predefined && custom != nil:
		leaveOut(at.Child("custom").String(), fmt.Sprintf("the type is %s: set the type %s, or remove custom", profile.Type, customTLSProfile))
	case predefined:
	case profile.Type != customTLSProfile:
		leaveOut(at.String(), fmt.Sprintf("the profile %q is unknown: set tlsMinVersion and tlsCipherSuites in spec.kubelet.configuration", profile.Type))
		return nil
	case custom == nil:
		return field.ErrorList{field.Required(at.Child("custom"), "the type is "+customTLSProfile+": set custom.minTLSVersion and custom.ciphers")}
	case custom.MinTLSVersion != "" && !slices.Contains(cliflag.TLSPossibleVersions(), custom.MinTLSVersion):
		return field.ErrorList{field.NotSupported(at.Child("custom", "minTLSVersion"), custom.MinTLSVersion, cliflag.TLSPossibleVersions())}
	default:
		of = tlsProfile{custom.MinTLSVersion, custom.Ciphers}
	}
	var names []any
	for i, cipher := range of.ciphers {
		known := slices.IndexFunc(suites, func(suite [2]string) bool { return cipher == suite[0] || cipher == suite[1] })
		if known < 0 {
			leaveOut(at.Child("custom", "ciphers").Index(i).String(), fmt.Sprintf("kubelets do not have %q", cipher))
			continue
		}
		names = append(names, suites[known][1])
	}
	if _, has := section["tlsMinVersion"]; !has && of.minVersion != "" {
		section["tlsMinVersion"] = of.minVersion
	}
	if _, has := section["tlsCipherSuites"]; !has && len(names) > 0 {
		section["tlsCipherSuites"] = names
	}
	return nil
}
