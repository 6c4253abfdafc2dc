package admission

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission")
}

func ctx() context.Context { return context.Background() }

// beRefusedAt matches an error that names a field with a message that has all the words.
func beRefusedAt(fieldPath string, words ...string) gomegatypes.GomegaMatcher {
	causes := func(err error) []metav1.StatusCause {
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Details == nil {
			return nil
		}
		return status.Status().Details.Causes
	}
	matchers := []gomegatypes.GomegaMatcher{HaveField("Field", fieldPath)}
	for _, word := range words {
		matchers = append(matchers, HaveField("Message", ContainSubstring(word)))
	}
	return WithTransform(causes, ContainElement(And(matchers...)))
}

func raw(document string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(document)} }
