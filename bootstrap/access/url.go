package access

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// configPath is the prefix of the paths from which hosts request their configuration.
const configPath = "/config/"

// Address is the path from which the host of a machine requests its configuration, relative to the URL of the config
// server. It contains the namespace and name of the PoolbootConfig, so objects in other namespaces do not affect the
// response.
type Address struct {
	// Role is the role of the pool. It is only for information.
	Role string
	types.NamespacedName
	// PointerID distinguishes the PoolbootConfig from earlier and later ones with the same name.
	PointerID string
}

// URL returns the URL for the pointer of a host.
func (a Address) URL(server string) string {
	return server + configPath + url.PathEscape(a.Role) + "/" + a.Namespace + "/" + a.Name + "/" + url.PathEscape(a.PointerID)
}

// ParseURL parses a URL that Address.URL returned.
func ParseURL(pointer string) (Address, error) {
	u, err := url.Parse(pointer)
	if err != nil {
		return Address{}, err
	}
	_, path, _ := strings.Cut(u.Path, configPath)
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[1] == "" || parts[2] == "" || parts[3] == "" {
		return Address{}, fmt.Errorf("URL %q is not <server>%s<role>/<namespace>/<name>/<pointer id>", pointer, configPath)
	}
	return Address{Role: parts[0], NamespacedName: types.NamespacedName{Namespace: parts[1], Name: parts[2]}, PointerID: parts[3]}, nil
}

// EnrollmentURL returns the URL from which hosts with the token of an Enrollment request their configuration. The host
// adds the name that it requests: <URL>?name=<name>.
func EnrollmentURL(server, role string, enrollment types.NamespacedName) string {
	return server + configPath + url.PathEscape(role) + "/" + enrollment.Namespace + "/" + enrollment.Name
}
