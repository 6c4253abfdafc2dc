package accounts_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/accounts"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/hostroot"
)

func TestAccounts(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Users and groups of a host")
}

// newImage returns a root file system with a user and a group of the image.
func newImage() string {
	GinkgoHelper()
	root := hostroot.New(GinkgoT())
	run(root, "groupadd", "--gid", "900", "staff-of-image")
	run(root, "useradd", "--uid", "1500", "--create-home", "--shell", "/bin/bash", "--comment", "Of the image", "--groups", "staff-of-image", "--password", "$6$image", "core")
	return root
}

// keepImage copies the accounts to where hosts keep the /etc of their image.
func keepImage(root string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Join(root, "usr/etc"), 0o755)).To(Succeed())
	for _, name := range files {
		contents, err := os.ReadFile(filepath.Join(root, "etc", name))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(root, "usr/etc", name), contents, 0o600)).To(Succeed())
	}
}

// files have the accounts.
var files = []string{"passwd", "shadow", "group", "gshadow"}

func run(root string, arguments ...string) string {
	GinkgoHelper()
	output, err := exec.Command("chroot", append([]string{root}, arguments...)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return string(output)
}

// snapshot returns all accounts, in order, without the days on which passwords changed.
func snapshot(root string) (lines []string) {
	GinkgoHelper()
	for _, name := range files {
		contents, err := os.ReadFile(filepath.Join(root, "etc", name))
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(string(contents)) {
			fields := strings.Split(strings.TrimSpace(line), ":")
			if name == "shadow" {
				fields = fields[:2]
			}
			if name == "group" || name == "gshadow" {
				members := strings.Split(fields[3], ",")
				slices.Sort(members)
				fields[3] = strings.Join(members, ",")
			}
			lines = append(lines, name+" "+strings.Join(fields, ":"))
		}
	}
	slices.Sort(lines)
	return lines
}

// line returns the line of a name in a file, nothing if there is none.
func line(root, file, name string) string {
	GinkgoHelper()
	for _, line := range snapshot(root) {
		if rest, is := strings.CutPrefix(line, file+" "); is && strings.HasPrefix(rest, name+":") {
			return rest
		}
	}
	return ""
}

func executor(root string) accounts.Executor {
	return accounts.Executor{Runner: command.Runner{Root: root}}
}

// userChange is an operation of a user from one state to another, each as JSON without the name, or nothing.
func userChange(name, before, after string) update.Operation {
	GinkgoHelper()
	parse := func(text string) *types.PasswdUser {
		if text == "" {
			return nil
		}
		u := &types.PasswdUser{}
		Expect(json.Unmarshal([]byte(text), u)).To(Succeed())
		u.Name = name
		return u
	}
	return update.Operation{Kind: update.ChangeUser, Name: name, Before: update.State{User: parse(before)}, After: update.State{User: parse(after)}}
}

// groupChange is userChange for a group.
func groupChange(name, before, after string) update.Operation {
	GinkgoHelper()
	parse := func(text string) *types.PasswdGroup {
		if text == "" {
			return nil
		}
		g := &types.PasswdGroup{}
		Expect(json.Unmarshal([]byte(text), g)).To(Succeed())
		g.Name = name
		return g
	}
	return update.Operation{Kind: update.ChangeGroup, Name: name, Before: update.State{Group: parse(before)}, After: update.State{Group: parse(after)}}
}

// applyAll carries out operations in their order, also after one that failed.
func applyAll(executor interface {
	Apply(ctx context.Context, operation update.Operation) error
}, ctx context.Context, operations []update.Operation) (err error) {
	for _, operation := range operations {
		err = errors.Join(err, executor.Apply(ctx, operation))
	}
	return err
}
