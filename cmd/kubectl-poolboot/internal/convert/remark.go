package convert

import (
	"fmt"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// remark is a note or a warning about an object.
type remark struct {
	severity string
	about    error
}

func (r *remark) Error() string { return r.severity + ": " + r.about.Error() }

// Unwrap returns the remark with its place, without its severity.
func (r *remark) Unwrap() error { return r.about }

// remarks are the notes and warnings of one conversion.
type remarks struct {
	objects *input.Objects
	all     []error
}

// add adds a remark that begins with its severity, and the kind and the name of an object.
func (r *remarks) add(text string, args ...any) {
	severity, about, _ := strings.Cut(fmt.Sprintf(text, args...), ": ")
	r.all = append(r.all, &remark{severity, r.objects.LocateText(about)})
}
