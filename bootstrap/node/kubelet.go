package node

// KubeletArgs returns the kubelet's flags for this registration, as --name=value, in a fixed order: what a kubelet may
// set itself, so that it comes back when the Node is deleted and registers anew. No value holds a blank, a quote, a
// backslash or a dollar sign: joined by blanks they are safe in a systemd EnvironmentFile.
func (r Registration) KubeletArgs() []string { return nil }

// KubeletMaySet tells whether a kubelet accepts a label key in --node-labels.
func KubeletMaySet(labelKey string) bool { return false }
