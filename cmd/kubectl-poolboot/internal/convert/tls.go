package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
)

// tlsProfile is what a TLS security profile of OpenShift means for the kubelet.
type tlsProfile struct {
	minVersion string
	ciphers    []string // names of OpenSSL
}

var (
	tls13Ciphers        = []string{"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
	intermediateCiphers = []string{
		"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384",
		"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
	}
	oldCiphers = []string{
		"ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
		"AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA256", "AES128-SHA", "AES256-SHA", "DES-CBC3-SHA",
	}
	// tlsProfiles are OpenShift's predefined profiles, with the cipher suites that a kubelet has: Go has none with DHE.
	tlsProfiles = map[string]tlsProfile{
		"Old":          {"VersionTLS10", slices.Concat(tls13Ciphers, intermediateCiphers, oldCiphers)},
		"Intermediate": {"VersionTLS12", slices.Concat(tls13Ciphers, intermediateCiphers)},
		"Modern":       {"VersionTLS13", tls13Ciphers},
	}
)

// customTLSProfile is the type of a profile with its own version and cipher suites.
const customTLSProfile = "Custom"

// suiteOf returns the name of a cipher suite in a KubeletConfiguration for its name in OpenSSL, or "" if a kubelet does
// not have it.
func suiteOf(openSSL string) string {
	name := openSSL
	if !strings.HasPrefix(name, "TLS_") {
		exchange, rest := "RSA", name
		for prefix, of := range map[string]string{"ECDHE-ECDSA-": "ECDHE_ECDSA", "ECDHE-RSA-": "ECDHE_RSA"} {
			if after, has := strings.CutPrefix(name, prefix); has {
				exchange, rest = of, after
			}
		}
		cipher, hash, isPair := cutLast(rest, "-")
		switch {
		case rest == "CHACHA20-POLY1305":
			cipher, hash = "CHACHA20_POLY1305", "SHA256"
		case rest == "DES-CBC3-SHA":
			cipher, hash = "3DES_EDE_CBC", "SHA"
		case !isPair:
			return ""
		default:
			cipher = strings.NewReplacer("AES128", "AES_128", "AES256", "AES_256", "-", "_").Replace(cipher)
			if !strings.HasSuffix(cipher, "_GCM") {
				cipher += "_CBC"
			}
		}
		name = fmt.Sprintf("TLS_%s_WITH_%s_%s", exchange, cipher, hash)
	}
	if !slices.Contains(cliflag.TLSCipherPossibleValues(), name) {
		return ""
	}
	return name
}

// cutLast cuts a text at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// setTLSProfile sets the fields of a kubelet section for a TLS security profile. Fields that the section has already
// are kept, as in OpenShift. It returns what is wrong with the profile.
func setTLSProfile(section, profile map[string]any, leaveOut func(path, why string)) field.ErrorList {
	at := field.NewPath("spec", "tlsSecurityProfile")
	refuse := func(name, why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child(name), field.OmitValueType{}, why)}
	}
	name, isText := profile["type"].(string)
	switch {
	case !isText && profile["type"] != nil:
		return refuse("type", "must be a string: set "+strings.Join(slices.Sorted(maps.Keys(tlsProfiles)), ", ")+" or "+customTLSProfile)
	case name == "":
		name = "Intermediate" // OpenShift's default
	}
	of, predefined := tlsProfiles[name]
	switch custom, has := profile["custom"].(map[string]any); {
	case predefined:
	case name != customTLSProfile:
		leaveOut("tlsSecurityProfile", fmt.Sprintf("the profile %q is unknown: set tlsMinVersion and tlsCipherSuites in spec.kubeletConfiguration", name))
		return nil
	case !has:
		return refuse("custom", "the type is "+customTLSProfile+": set custom.minTLSVersion and custom.ciphers")
	default:
		of.minVersion, _ = custom["minTLSVersion"].(string)
		ciphers, _ := custom["ciphers"].([]any)
		for _, cipher := range ciphers {
			of.ciphers = append(of.ciphers, fmt.Sprint(cipher))
		}
	}
	var suites []any
	for _, cipher := range of.ciphers {
		if suite := suiteOf(cipher); suite != "" {
			suites = append(suites, suite)
		} else {
			leaveOut("tlsSecurityProfile.custom.ciphers", "kubelets do not have "+cipher)
		}
	}
	if _, has := section["tlsMinVersion"]; !has && of.minVersion != "" {
		section["tlsMinVersion"] = of.minVersion
	}
	if _, has := section["tlsCipherSuites"]; !has && len(suites) > 0 {
		section["tlsCipherSuites"] = suites
	}
	return nil
}
