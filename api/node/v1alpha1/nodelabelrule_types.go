package v1alpha1

import "cmp"

// OnMissing says what becomes of a label rule whose expression touches a fact that the host does not have.
//
// +kubebuilder:validation:Enum=Skip;Block
type OnMissing string

const (
	// OnMissingSkip registers the Node without the label.
	OnMissingSkip OnMissing = "Skip"
	// OnMissingBlock blocks the host, which gets no configuration, until the fact is there.
	OnMissingBlock OnMissing = "Block"
)

// OnInvalid says what becomes of a label rule whose expression gives a text that no label can have as its value.
//
// +kubebuilder:validation:Enum=Block;Sanitize
type OnInvalid string

const (
	// OnInvalidBlock blocks the host, which gets no configuration, until the rule or the fact is corrected.
	OnInvalidBlock OnInvalid = "Block"
	// OnInvalidSanitize makes a label value of the text: every run of other characters than letters, digits, ".", "_"
	// and "-" becomes one "-", then it is cut to 63 characters, and both ends to a letter or a digit.
	OnInvalidSanitize OnInvalid = "Sanitize"
)

// NodeLabelRule is a rule that makes a Node label out of what is known of the host, its Machine and its Cluster.
type NodeLabelRule struct {
	// key is the label's key. Labels by which a pool selects its Nodes, roles (node-role.kubernetes.io/…) and labels
	// that the kubelet or Poolboot sets are refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="a label's key is a qualified name, as example.com/rack"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('node-role.kubernetes.io/')",message="it is a role, by which pools select their Nodes, and a host's facts must not move it into another pool: use another key",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="!(self in ['node.cluster.x-k8s.io/pool', 'metal3.io/uuid'])",message="Poolboot sets this label, to the role of the Node's pool or the UID of its BareMetalHost: use another key",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="!(self in ['kubernetes.io/hostname', 'kubernetes.io/os', 'kubernetes.io/arch'])",message="the kubelet sets this label: use another key",reason=FieldValueForbidden
	Key string `json:"key,omitempty"`

	// valueExpression is the label's value: a CEL expression that gives a string or an optional string, with the
	// functions that Kubernetes has in its own CEL. It knows three variables:
	//
	//   host.name, host.namespace, host.uid, host.labels, host.annotations, and host.hardware with vendor, product,
	//   serial, hostname, memoryMebibytes, cpu{arch, model, clockMegahertz, count, flags}, bios{vendor, version, date},
	//   nics[]{name, model, mac, ip, speedGbps, vlanID, pxe, lldp{switchID, portID, switchSystemName}},
	//   disks[]{name, type, rotational, sizeBytes, vendor, model, serial, wwn, hctl};
	//   machine.name, machine.namespace, machine.labels, machine.annotations, machine.version, machine.failureDomain;
	//   cluster.name, cluster.namespace, cluster.labels, cluster.annotations.
	//
	// Hardware is that of the HardwareData of the BareMetalHost's name or, without one, of its status.hardware. What is
	// not known, or empty, is missing: has(host.hardware.vendor) is false then, and host.?hardware.?vendor is none.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	ValueExpression string `json:"valueExpression,omitempty"`

	// onMissing says what to do when the expression touches something that the host does not have, or gives none: Skip
	// registers the Node without the label, Block blocks the host until the fact is there. Defaults to Skip.
	// +optional
	OnMissing OnMissing `json:"onMissing,omitempty"`

	// onInvalid says what to do with a text that is no label value: Block blocks the host until the rule or the fact is
	// corrected, Sanitize makes a label value of it. Defaults to Block.
	// +optional
	OnInvalid OnInvalid `json:"onInvalid,omitempty"`
}

// WhenMissing returns what to do when the expression touches something that the host does not have: by default Skip.
func (r *NodeLabelRule) WhenMissing() OnMissing { return cmp.Or(r.OnMissing, OnMissingSkip) }

// WhenInvalid returns what to do with a text that is no label value: by default Block.
func (r *NodeLabelRule) WhenInvalid() OnInvalid { return cmp.Or(r.OnInvalid, OnInvalidBlock) }
