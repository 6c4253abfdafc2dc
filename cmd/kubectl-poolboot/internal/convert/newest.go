package convert

import (
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// suffixAnnotation numbers the KubeletConfigs, and the ContainerRuntimeConfigs, in the order in which OpenShift read
// them. The first one does not have the annotation, or an empty value.
const suffixAnnotation = "machineconfiguration.openshift.io/mc-name-suffix"

// newest returns the objects that can be the one that OpenShift read last: several if their numbers and ages do not
// tell which one it is.
func newest[T any](of []T, meta func(T) metav1.ObjectMeta) (last []T) {
	for _, object := range of {
		if !slices.ContainsFunc(of, func(other T) bool { return isLater(meta(other), meta(object)) }) {
			last = append(last, object)
		}
	}
	return last
}

// otherOf returns the first of several objects, and for the first one the second.
func otherOf[T any](all []T, than int) T {
	if than == 0 {
		return all[1]
	}
	return all[0]
}

// isLater reports whether OpenShift read an object later than another one, by its number or its age.
func isLater(object, than metav1.ObjectMeta) bool {
	if suffixOf(object) != suffixOf(than) {
		return suffixOf(object) > suffixOf(than)
	}
	return !than.CreationTimestamp.IsZero() && object.CreationTimestamp.After(than.CreationTimestamp.Time)
}

// suffixOf returns the number that OpenShift gave an object: a higher one was read later.
func suffixOf(object metav1.ObjectMeta) int {
	number, _ := strconv.Atoi(object.Annotations[suffixAnnotation])
	return number
}
