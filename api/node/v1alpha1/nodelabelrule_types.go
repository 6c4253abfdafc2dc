package v1alpha1

import "cmp"

// OnMissing is what happens when the expression of a label rule refers to a fact that the host does not have.
//
// +kubebuilder:validation:Enum=Skip;Block
type OnMissing string

const (
	// OnMissingSkip registers the Node without the label.
	OnMissingSkip OnMissing = "Skip"
	// OnMissingBlock blocks the host, which gets no configuration, until the fact is known.
	OnMissingBlock OnMissing = "Block"
)

// OnInvalid is what happens when the result of a label rule's expression is not a valid label value.
//
// +kubebuilder:validation:Enum=Block;Sanitize
type OnInvalid string

const (
	// OnInvalidBlock blocks the host, which gets no configuration, until the rule or the fact is corrected.
	OnInvalidBlock OnInvalid = "Block"
	// OnInvalidSanitize converts the result to a label value: every sequence of characters other than letters, digits,
	// ".", "_" and "-" becomes one "-". Then the value is cut to 63 characters and trimmed at both ends to a letter or
	// a digit.
	OnInvalidSanitize OnInvalid = "Sanitize"
)

// NodeLabelRule is a rule that derives a Node label from facts of the host, its Machine and its Cluster.
type NodeLabelRule struct {
	// key is the key of the label. Refused are labels by which a pool selects its Nodes, role labels
	// (node-role.kubernetes.io/…), and labels that the kubelet or Poolboot sets.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="it must be a label key, such as example.com/rack"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('node-role.kubernetes.io/')",message="it is a role label, by which pools select their Nodes. Facts of a host must not move it into another pool: use another key",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="!(self in ['poolboot.io/pool', 'metal3.io/uuid'])",message="Poolboot sets this label, to the role of the Node's pool or the UID of its BareMetalHost: use another key",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="!(self in ['kubernetes.io/hostname', 'kubernetes.io/os', 'kubernetes.io/arch'])",message="the kubelet sets this label: use another key",reason=FieldValueForbidden
	Key string `json:"key,omitempty"`

	// valueExpression is a CEL expression that returns the value of the label, as a string or an optional string. It
	// can use the functions of Kubernetes' own CEL, and three variables:
	//
	//   host.name, host.namespace, host.uid, host.labels, host.annotations, and host.hardware with vendor, product,
	//   serial, hostname, memoryMebibytes, cpu{arch, model, clockMegahertz, count, flags}, bios{vendor, version, date},
	//   nics[]{name, model, mac, ip, speedGbps, vlanID, pxe, lldp{switchID, portID, switchSystemName}},
	//   disks[]{name, type, rotational, sizeBytes, vendor, model, serial, wwn, hctl};
	//   machine.name, machine.namespace, machine.labels, machine.annotations, machine.version, machine.failureDomain;
	//   cluster.name, cluster.namespace, cluster.labels, cluster.annotations.
	//
	// host.hardware is taken from the HardwareData with the BareMetalHost's name or, without one, from its
	// status.hardware. A fact that is unknown or empty is missing: has(host.hardware.vendor) is false, and
	// host.?hardware.?vendor is none.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10240
	ValueExpression string `json:"valueExpression,omitempty"`

	// onMissing is what to do when the expression refers to a fact that is missing, or returns none: Skip registers the
	// Node without the label, Block blocks the host until the fact is known. Defaults to Skip.
	// +optional
	OnMissing OnMissing `json:"onMissing,omitempty"`

	// onInvalid is what to do when the expression returns a string that is not a label value: Block blocks the host
	// until the rule or the fact is corrected, Sanitize converts it to a label value. Defaults to Block.
	// +optional
	OnInvalid OnInvalid `json:"onInvalid,omitempty"`
}

// WhenMissing returns what to do when the expression refers to a fact that is missing, by default Skip.
func (r *NodeLabelRule) WhenMissing() OnMissing { return cmp.Or(r.OnMissing, OnMissingSkip) }

// WhenInvalid returns what to do when the result is not a label value, by default Block.
func (r *NodeLabelRule) WhenInvalid() OnInvalid { return cmp.Or(r.OnInvalid, OnInvalidBlock) }
