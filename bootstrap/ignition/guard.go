package ignition

import "strings"

// GuardError lists what a configuration would take over.
type GuardError struct {
	// Entries are at least one, in the order of the document.
	Entries []Refusal
}

// Refusal is one entry of a configuration that is refused.
type Refusal struct {
	// Path leads to the entry, for example storage.files[2] (/etc/hostname).
	Path string
	// Why says whose the entry is and what to do instead.
	Why string
}

// Error names every entry that is refused.
func (e *GuardError) Error() string {
	entries := make([]string, len(e.Entries))
	for i, entry := range e.Entries {
		entries[i] = entry.Path + ": " + entry.Why
	}
	return strings.Join(entries, "; ")
}

// Guard refuses a configuration of a user that would take over what carries a Node's name, labels, taints or credential.
// It returns nil or a *GuardError that lists every such entry.
func Guard(c Config) error {
	scan := scan{}
	scan.config(c)
	if len(scan.refused) > 0 {
		return &GuardError{Entries: scan.refused}
	}
	return nil
}
