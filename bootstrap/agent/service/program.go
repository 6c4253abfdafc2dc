package service

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
)

// maxTrialStarts is how often a new program may start before it has worked once. Then the previous one returns.
const maxTrialStarts = 5

// trialTimeout is how long a new program may take to show that it works.
const trialTimeout = 2 * time.Minute

// Endings of the files beside the program.
const (
	newEnding      = ".new"
	previousEnding = ".previous"
	trialEnding    = ".trial"
)

// Program replaces the program of the agent.
//
// Another program must first show, as another process, that it works on this host. Only then it replaces the running
// one, in one step. Until it has worked once as the agent, the previous one is kept, and returns if the new one does
// not come up.
type Program struct {
	// Root is the root directory of the host, and Path the absolute path of the program in it.
	Root *os.Root
	Path string
	// Version is that of the running program, and SHA512 its hash in hex.
	Version, SHA512 string
	// Try runs a program with the argument "check".
	Try func(ctx context.Context, path string) error
}

// NewProgram returns the running program, which is at a path.
func NewProgram(root *os.Root, path, version string, try func(ctx context.Context, path string) error) (*Program, error) {
	running, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	sum, err := sumOf(running)
	return &Program{Root: root, Path: path, Version: version, SHA512: sum, Try: try}, err
}

// sumOf returns the hash of a file in hex, and closes the file.
func sumOf(file *os.File) (string, error) {
	defer file.Close()
	hash := sha512.New()
	_, err := io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// Running returns the version, the SHA-512 in hex and the architecture of the running program.
func (p *Program) Running() (version, sum, architecture string) {
	return p.Version, p.SHA512, runtime.GOARCH
}

// trial is what is recorded about a new program.
type trial struct {
	// SHA512 is the hash of the new program, and Starts how often it started.
	SHA512 string `json:"sha512"`
	Starts int    `json:"starts"`
	// IsRefused is set if it did not come up.
	IsRefused bool `json:"isRefused,omitempty"`
}

func (p *Program) name(ending string) string { return strings.TrimPrefix(p.Path+ending, "/") }

func (p *Program) readTrial() (t trial, err error) {
	raw, err := p.Root.ReadFile(p.name(trialEnding))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trial{}, err
	}
	if json.Unmarshal(raw, &t) != nil { // a damaged counter, or none, starts again
		t = trial{}
	}
	return t, nil
}

func (p *Program) writeTrial(t trial) error {
	return durable.WriteRecord(p.Root.Name(), p.name(trialEnding), t)
}

// write replaces a file in one step, and syncs it.
func (p *Program) write(ending string, contents []byte, mode fs.FileMode) error {
	return durable.Write(filepath.Join(p.Root.Name(), p.name(ending)), contents, mode)
}

func (p *Program) rename(from, to string) error {
	if err := p.Root.Rename(from, to); err != nil {
		return err
	}
	return p.sync()
}

func (p *Program) sync() error {
	directory, err := p.Root.Open(path.Dir(p.name("")))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}

func (p *Program) remove(name string) error {
	if err := p.Root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Replace tries out another program and replaces the running one by it. A program that fails is unusable only if the
// running one passes the same check at that time: otherwise the check says nothing about the program.
func (p *Program) Replace(ctx context.Context, contents []byte) error {
	sum := sha512.Sum512(contents)
	now := trial{SHA512: hex.EncodeToString(sum[:])}
	installed, err := p.sumOfInstalled()
	if err != nil {
		return err
	}
	if installed == now.SHA512 {
		return nil // it replaced the running one already, and the next start runs it
	}
	last, err := p.readTrial()
	if err != nil {
		return err
	}
	if last.IsRefused && last.SHA512 == now.SHA512 {
		return fmt.Errorf("%w: it did not come up %d times, and the previous program returned", agent.ErrUnusable, maxTrialStarts)
	}
	if err := errors.Join(p.remove(p.name(newEnding)), p.write(newEnding, contents, 0o755)); err != nil { // one that is left keeps its mode
		return errors.Join(err, p.remove(p.name(newEnding)))
	}
	if err := p.try(ctx); err != nil {
		return errors.Join(err, p.remove(p.name(newEnding)))
	}
	if err := p.remove(p.name(previousEnding)); err != nil {
		return err
	}
	if installed == p.SHA512 { // and not something else that somebody put there
		if err := p.Root.Link(p.name(""), p.name(previousEnding)); err != nil {
			return err
		}
	}
	if err := p.writeTrial(now); err != nil {
		return err
	}
	return p.rename(p.name(newEnding), p.name(""))
}

// try checks the new program, and if it fails, the running one, too.
func (p *Program) try(ctx context.Context) error {
	check := func(ending string) error {
		limited, cancel := context.WithTimeout(ctx, trialTimeout)
		defer cancel()
		return p.Try(limited, p.Path+ending)
	}
	err := check(newEnding)
	if err == nil {
		return nil
	}
	if running := check(""); running != nil {
		return fmt.Errorf("neither the new program nor the running one passes the check, so nothing is known about the new one: %w", err)
	}
	return fmt.Errorf("%w: %w", agent.ErrUnusable, err)
}

// sumOfInstalled returns the hash in hex of the program that the next start of the agent runs.
func (p *Program) sumOfInstalled() (string, error) {
	file, err := p.Root.Open(p.name(""))
	if err != nil {
		return "", err
	}
	return sumOf(file)
}

// Guard counts a start of the program that replaced this one and has not worked yet. systemd calls it before each start
// of the agent, while there is a previous program. If there were too many, the previous program returns, and the start
// that follows is its own. If the power failed before the new program was in its place, nothing is counted, and if it
// failed before the return was recorded, the new one is tried again.
func (p *Program) Guard() error {
	t, err := p.readTrial()
	if err != nil || t.SHA512 == "" || t.IsRefused {
		return err
	}
	if installed, err := p.sumOfInstalled(); err != nil || installed != t.SHA512 {
		return err
	}
	if t.Starts++; t.Starts > maxTrialStarts {
		if err := p.rename(p.name(previousEnding), p.name("")); err != nil {
			return err
		}
		t.IsRefused = true
	}
	return p.writeTrial(t)
}

// prove records that a program works: the previous one is not needed any more.
func (p *Program) prove() error {
	t, err := p.readTrial()
	if err != nil || t.SHA512 != p.SHA512 {
		return err
	}
	if err := p.remove(p.name(previousEnding)); err != nil {
		return err
	}
	return p.remove(p.name(trialEnding))
}
