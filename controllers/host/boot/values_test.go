package boot

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"syscall"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	"k8s.io/utils/ptr"
)

type hostObject = bmov1alpha1.BareMetalHost

// errRefused is the error of a connection to an API server that is not running.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// decoded returns the content of an Ignition resource.
func decoded(resource types.Resource) string {
	GinkgoHelper()
	source, err := dataurl.DecodeString(ptr.Deref(resource.Source, ""))
	Expect(err).NotTo(HaveOccurred())
	if ptr.Deref(resource.Compression, "") != "gzip" {
		return string(source.Data)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(source.Data))
	Expect(err).NotTo(HaveOccurred())
	content, err := io.ReadAll(unpacked)
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}
