package explain

import (
	"fmt"

	"k8s.io/klog/v2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

// addMetal3Tasks adds what a person has to do because Metal3 does not get on with the host.
func (b *bootReport) addMetal3Tasks(s *subject) {
	if s.trouble != "" {
		b.Todo = append(b.Todo, s.trouble+". Metal3 tries again by itself: if it fails again, check the BMC and the console of the host, its image, and the log of the baremetal-operator")
	}
	b.Todo = append(b.Todo, s.missingSecrets...)
}

// labelSyncConflict returns what to do about a label that Metal3 sets to another value than it is declared with, again
// each time that it is set. It returns "" for all other labels.
func (s *subject) labelSyncConflict(label nodeProperty, key, value string) string {
	prefix := s.labelSync.PrefixOf(key)
	if prefix == "" || s.bmh == nil {
		return ""
	}
	does := "removes the label from the Node, because BareMetalHost " + klog.KObj(s.bmh).String() + " does not have it"
	switch synced, has := s.bmh.Labels[key]; {
	case has && synced == value:
		return ""
	case has:
		does = fmt.Sprintf("sets it to %q, as on BareMetalHost %s", synced, klog.KObj(s.bmh))
	}
	return fmt.Sprintf("%s declares %s, and every minute Metal3 %s: annotation %s of Metal3Cluster %s has its prefix %s. "+
		"Use another prefix for the label, remove the prefix from the annotation, or: kubectl -n %s label baremetalhost %s %s --overwrite",
		label.From[0], label.Text, does, host.LabelSyncAnnotation, s.labelSync.Metal3Cluster, prefix, s.bmh.Namespace, s.bmh.Name, label.Text)
}
