package controllertest

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Health returns the status of an object as Flux and other programs with kstatus read it, and its message.
func Health(object client.Object) (status.Status, string) {
	GinkgoHelper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	Expect(err).NotTo(HaveOccurred())
	result, err := status.Compute(&unstructured.Unstructured{Object: content})
	Expect(err).NotTo(HaveOccurred())
	return result.Status, result.Message
}
