package hostfiles

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Classes of files in a policy of SELinux.
const (
	classFile      = "file"
	classDirectory = "dir"
	classLink      = "lnk_file"
)

// label sets the SELinux labels of what the steps create, also when they are undone. All are known before the commit:
// after it, nothing depends on the policy and its programs.
func (p *plan) label() error {
	if p.Labels == nil {
		return nil
	}
	steps, paths := map[string][]*step{}, map[string][]string{}
	for i := range p.steps {
		s := &p.steps[i]
		class := p.classOf(s)
		steps[class], paths[class] = append(steps[class], s), append(paths[class], "/"+s.Path)
	}
	delete(steps, "")
	for class, of := range steps {
		labels, err := p.Labels(class, paths[class])
		if err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
		for i, s := range of {
			s.Label = labels[i]
		}
	}
	return nil
}

// classOf returns the class of the file that a step creates, an empty one if there is none.
func (p *plan) classOf(s *step) string {
	switch s.Do {
	case mkdir, rmdir:
		return classDirectory
	case put:
		switch from := p.sources[s.Slot].source; {
		case from.symlink != "":
			return classLink
		case from.link == "" && from.hardLink == "":
			return classFile
		}
	}
	return ""
}

// label returns the attribute with the label of a step, nil if it has none.
func (s *step) label() map[string]string {
	if s.Label == "" {
		return nil
	}
	return map[string]string{selinuxLabel: s.Label}
}

// labelOf returns the SELinux label of a new file: that of the policy, of the file that it replaces, or of its
// directory. Without it, it would have that of the directory of slots.
func (p *plan) labelOf(s *step) (map[string]string, error) {
	if label := s.label(); label != nil {
		return label, nil
	}
	if s.Old {
		if label, err := p.attributes(s.Path, false); err != nil || label != nil {
			return label, err
		}
	}
	parent, err := p.existingParent(s.Path)
	if err != nil {
		return nil, err
	}
	return p.attributes(parent, false)
}

// ignoreNoAttribute returns nil for errors that say that there is no such attribute, or that the file system has none.
func ignoreNoAttribute(err error) error {
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
