package accounts

import (
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// RecordPath is the file that says which users and groups Poolboot changed, and how they were before. It has password
// hashes, and only root can read it.
const RecordPath = hostfiles.StateDirectory + "/accounts.json"

// records say how users and groups were before Poolboot changed them, by name.
type records struct {
	Users  map[string]*userRecord  `json:"users"`
	Groups map[string]*groupRecord `json:"groups"`
}

type userRecord struct {
	// Original is the user of the image, nil if there was none.
	Original *user `json:"original,omitempty"`
	// KeptGroup is set while a user is removed: it is a group with the name of the user that stays.
	KeptGroup *group `json:"keptGroup,omitempty"`
	// HadHome is set while a user is created: it is true if its home existed before. That home keeps its owner.
	HadHome *bool `json:"hadHome,omitempty"`
	// IsCreated is true when a user that did not exist is completely created.
	IsCreated bool `json:"isCreated,omitempty"`
	// Removed are the IDs of a user that was removed. It gets them again: its files still have them.
	Removed *user `json:"removed,omitempty"`
	// Released is true if the user is as it was before. The record is kept for the case that this is repeated after a
	// power failure, until Poolboot changes the user again.
	Released bool `json:"released,omitempty"`
}

type groupRecord struct {
	// Original is the group of the image, nil if there was none.
	Original *group `json:"original,omitempty"`
	// Removed has the ID of a group that was removed.
	Removed  *group `json:"removed,omitempty"`
	Released bool   `json:"released,omitempty"`
}

// remember records how users and groups are before Poolboot changes them, and returns all records.
func (e Executor) remember(operations []update.Operation) (*records, error) {
	known, err := e.load()
	if err != nil {
		return nil, err
	}
	for _, operation := range operations {
		name := operation.Name
		switch {
		case operation.Kind == update.ChangeUser && operation.Before.User == nil && (known.Users[name] == nil || known.Users[name].Released):
			r := &userRecord{}
			if old := known.Users[name]; old != nil {
				r.Removed = old.Removed
			}
			r.Original, err = e.user(name)
			known.Users[name] = r
		case operation.Kind == update.ChangeGroup && operation.Before.Group == nil && (known.Groups[name] == nil || known.Groups[name].Released):
			r := &groupRecord{}
			if old := known.Groups[name]; old != nil {
				r.Removed = old.Removed
			}
			r.Original, err = e.group(name)
			known.Groups[name] = r
		}
		if err != nil {
			return nil, err
		}
	}
	return known, e.write(known)
}

// release marks the record of a user or group that is as it was before.
func (k *records) release(operation update.Operation) {
	if r := k.Users[operation.Name]; operation.Kind == update.ChangeUser && operation.After.User == nil && r != nil {
		r.Released = true
	}
	if r := k.Groups[operation.Name]; operation.Kind == update.ChangeGroup && operation.After.Group == nil && r != nil {
		r.Released = true
	}
}

// originalUser returns how a user was before Poolboot and Ignition changed it, nil if there was none. It reports false
// if that is not known.
func (e Executor) originalUser(known *records, name string) (original *user, isKnown bool, err error) {
	if r := known.Users[name]; r != nil {
		return r.Original, true, nil
	}
	if !e.hasImage() {
		return nil, false, nil
	}
	original, err = e.userIn(imageEtc, name)
	return original, true, err
}

// originalGroup is originalUser for groups.
func (e Executor) originalGroup(known *records, name string) (original *group, isKnown bool, err error) {
	if r := known.Groups[name]; r != nil {
		return r.Original, true, nil
	}
	if !e.hasImage() {
		return nil, false, nil
	}
	original, err = e.groupIn(imageEtc, name)
	return original, true, err
}

func (e Executor) load() (*records, error) {
	known := &records{}
	if _, err := durable.ReadRecord(e.Runner.Root, RecordPath, known); err != nil {
		return nil, err
	}
	if known.Users == nil {
		known.Users = map[string]*userRecord{}
	}
	if known.Groups == nil {
		known.Groups = map[string]*groupRecord{}
	}
	return known, nil
}

func (e Executor) write(known *records) error {
	return durable.WriteRecord(e.Runner.Root, RecordPath, known)
}
