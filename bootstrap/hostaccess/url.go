package hostaccess

import (
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// configPath begins the paths at which hosts ask for their configuration.
const configPath = "/config/"

// Address is where a machine's host asks, below the config server's URL. It names the PoolbootConfig, so that nothing
// in another namespace has a say in what the host is answered.
type Address struct {
	// Role is the pool's, for people to read.
	Role string
	types.NamespacedName
	// PointerID tells the PoolbootConfig from an earlier or later one of the same name.
	PointerID string
}

// URL returns the URL in a host's pointer.
func (a Address) URL(server string) string {
	return server + configPath + url.PathEscape(a.Role) + "/" + a.Namespace + "/" + a.Name + "/" + url.PathEscape(a.PointerID)
}

// ParseURL reads what Address.URL wrote.
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

// EnrollmentURL returns where hosts ask that have the token of an Enrollment, but for the name that they want:
// <URL>?name=<name>.
func EnrollmentURL(server, role string, enrollment types.NamespacedName) string {
	return server + configPath + url.PathEscape(role) + "/" + enrollment.Namespace + "/" + enrollment.Name
}
