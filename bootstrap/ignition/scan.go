package ignition

import (
	"path"
	"strings"
)

// scan looks through a configuration and gathers what is refused.
type scan struct {
	refused []Refusal
}

func (s *scan) config(c Config) {
	for _, file := range c.Storage.Files {
		if clean := path.Clean(file.Path); strings.HasPrefix(clean, OwnDirectory+"/") {
			s.refused = append(s.refused, Refusal{Path: "storage.files (" + clean + ")", Why: "is Poolboot's own"})
		}
	}
}
