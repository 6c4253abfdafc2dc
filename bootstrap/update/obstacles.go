package update

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Obstacle is an entry that a running host can't change. It makes the whole update impossible.
type Obstacle struct {
	Item
	// Why is why the host can't change it.
	Why string
	// Remedy is what to do instead.
	Remedy string
}

// String returns the obstacle for messages.
func (o Obstacle) String() string { return fmt.Sprintf("%s: %s: %s", o.Item, o.Why, o.Remedy) }

const (
	onlyWhenInstalled = "a host applies it only when it is installed"
	replaceMachine    = "replace the Machine, or undo the change"
)

// findObstacles returns the entries that no running host can change.
func findObstacles(before, after Config, onHost differing) (obstacles []Obstacle) {
	from, to := before.Ignition, after.Ignition
	if before.FIPS != after.FIPS {
		obstacles = append(obstacles, Obstacle{Item{Kind: KindFIPS}, onlyWhenInstalled, replaceMachine})
	}
	if before.OS.Image != "" && after.OS.Image == "" {
		obstacles = append(obstacles, Obstacle{Item{Kind: KindOSImage}, "it is removed, and the image that the host was installed with is not known",
			"set osImageURL to that image, or replace the Machine"})
	}
	if changesOS(before.OS, after.OS) {
		obstacles = append(obstacles, after.OS.Obstacles()...)
	}
	if !ignition.Equal(from.KernelArguments, to.KernelArguments) {
		obstacles = append(obstacles, Obstacle{Item{Kind: KindIgnitionKernelArguments}, onlyWhenInstalled,
			"use spec.kernelArguments of the MachineConfig instead, or replace the Machine"})
	}
	for _, item := range diskDifferences(from.Storage, to.Storage) {
		why := onlyWhenInstalled
		if item.Name == "" {
			why = "the order of the entries changes, and " + onlyWhenInstalled
		}
		obstacles = append(obstacles, Obstacle{item, why, "replace the Machine, undo the change, or set spec.updates.diskPolicy to NewHostsOnly"})
	}
	return slices.Concat(obstacles,
		refuseEach(KindFile, changed(from.Storage.Files, to.Storage.Files, onHost), refuseFile),
		refuseEach(KindDirectory, changed(from.Storage.Directories, to.Storage.Directories, onHost), refuseDirectory),
		refuseEach(KindUser, changed(from.Passwd.Users, to.Passwd.Users, nil), refuseUser),
		refuseEach(KindGroup, changed(from.Passwd.Groups, to.Passwd.Groups, nil), refuseGroup),
	)
}

// refuseEach returns an obstacle for each entry that differs and for which refuse has a reason.
func refuseEach[T keyed](kind Kind, entries iter.Seq2[*T, *T], refuse func(before, after *T) (why, remedy string)) (obstacles []Obstacle) {
	for old, now := range entries {
		if why, remedy := refuse(old, now); why != "" {
			obstacles = append(obstacles, Obstacle{Item{kind, keyOf(old, now)}, why, remedy})
		}
	}
	return obstacles
}

// refuseFile refuses what can't be repeated or verified.
func refuseFile(before, after *types.File) (why, remedy string) {
	if before != nil && len(before.Append) > 0 || after != nil && len(after.Append) > 0 {
		return "it appends to a file, which can be neither repeated nor undone", "write the whole contents instead, or replace the Machine"
	}
	if after == nil || after.Contents.Source == nil {
		return "", ""
	}
	switch _, err := hosttree.Decode(after.Contents, nil); {
	case ignition.IsRemote(err) && after.Contents.Verification.Hash == nil:
		return "its contents are from a URL and have no verification.hash, so another host could get other contents", "add the hash, or replace the Machine"
	case err != nil && !ignition.IsRemote(err):
		return "its contents can't be read: " + err.Error(), "correct the contents, or replace the Machine"
	}
	return "", ""
}

// refuseDirectory refuses a directory that replaces everything at its path, which can't be restored.
func refuseDirectory(before, after *types.Directory) (why, remedy string) {
	replaces := func(directory *types.Directory) bool {
		return directory != nil && ptr.Deref(directory.Overwrite, false)
	}
	if replaces(before) != replaces(after) {
		return "overwrite deletes what is in the directory, which can't be undone", "leave out overwrite, or replace the Machine"
	}
	return "", ""
}

// refuseUser refuses attributes that files of the user depend on, and the deletion of users of the image.
func refuseUser(before, after *types.PasswdUser) (why, remedy string) {
	isDeleted := func(user *types.PasswdUser) bool { return user != nil && !ptr.Deref(user.ShouldExist, true) }
	if isDeleted(before) || isDeleted(after) {
		return "shouldExist deletes a user of the image with its files, which can't be undone", "remove its keys and its password instead, or replace the Machine"
	}
	return refuseAttributes(before, after, "sshAuthorizedKeys", "passwordHash", "groups", "shell", "gecos")
}

// refuseGroup refuses attributes that files of the group depend on, and the deletion of groups of the image.
func refuseGroup(before, after *types.PasswdGroup) (why, remedy string) {
	isDeleted := func(group *types.PasswdGroup) bool { return group != nil && !ptr.Deref(group.ShouldExist, true) }
	if isDeleted(before) || isDeleted(after) {
		return "shouldExist deletes a group of the image, which can't be undone", "leave the group, or replace the Machine"
	}
	return refuseAttributes(before, after, "passwordHash")
}

// refuseAttributes refuses changes of all attributes of an entry but the named ones. An entry that is added or removed
// changes none.
func refuseAttributes[T any](before, after *T, mutable ...string) (why, remedy string) {
	if before == nil || after == nil {
		return "", ""
	}
	var names []string
	old, now := reflect.ValueOf(*before), reflect.ValueOf(*after)
	for i := range old.NumField() {
		name, _, _ := strings.Cut(old.Type().Field(i).Tag.Get("json"), ",")
		if !slices.Contains(mutable, name) && !reflect.DeepEqual(old.Field(i).Interface(), now.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", ""
	}
	return strings.Join(names, ", ") + " changes, and files on the host depend on it", replaceMachine
}
