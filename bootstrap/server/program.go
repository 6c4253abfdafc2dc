package server

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/utils/lru"
)

// Programs are the agents that hosts download, one for each architecture. They are public and contain no secrets.
type Programs struct{ byHash map[string]file }

// NewPrograms compresses programs and keeps them in memory. A program that changes has another hash, and the manager
// must offer that.
func NewPrograms(programs ...[]byte) (*Programs, error) {
	p := &Programs{byHash: map[string]file{}}
	for _, plain := range programs {
		sum := sha512.Sum512(plain)
		hash := hex.EncodeToString(sum[:])
		packed, err := packFile(plain, hash)
		if err != nil {
			return nil, err
		}
		p.byHash[hash] = packed
	}
	return p, nil
}

// serveProgram answers a host that downloads the agent. The agent is public: the hash in the URL, which the host
// verifies, is in its configuration.
//
// An unknown hash can be known to another replica during an upgrade. An answer such as 410 ends the boot, so the host
// gets it only if the hash stays unknown: then the host has a configuration from before an upgrade, and would retry
// forever.
func (v *view) serveProgram(ctx context.Context, w http.ResponseWriter, r *http.Request, target route) error {
	if v.opts.Programs.has(target.sha512) {
		limitWriteBuffer(ctx)
		return writeFile(w, r, v.opts.Programs.byHash[target.sha512], cachePublicly)
	}
	if v.missingPrograms.since(missingProgram{target.sha512, addressOf(r)}, v.opts.Now()) >= maxProgramWait {
		return newRefusal(http.StatusGone, "AgentGone", "no replica has the agent with this hash any more: boot the host again, so that it gets its current configuration")
	}
	return notReady("this replica does not have the agent with this hash: during an upgrade of Poolboot, another replica can have it. Try again")
}

// has reports whether a program is among these, which can be nil.
func (p *Programs) has(sha512 string) bool {
	if p == nil {
		return false
	}
	_, ok := p.byHash[sha512]
	return ok
}

const (
	// maxProgramWait is how long a host can retry for a program that this replica does not have. An upgrade takes less.
	maxProgramWait = 10 * time.Minute
	// maxProgramPause is the longest time between two requests of a host that retries: Ignition does so within seconds,
	// and other replicas can get some of its requests. After a longer time, it is another boot, in another upgrade.
	maxProgramPause = 5 * time.Minute
	// maxMissingPrograms limits what is remembered. A host whose request is forgotten can retry for longer.
	maxMissingPrograms = 4096
)

// missingProgram is a program that a client requests and that this replica does not have. The address is part of it:
// otherwise, anyone could request the program of the next version before hosts do.
type missingProgram struct {
	sha512 string
	from   netip.Addr
}

// missingPrograms remembers since when each missingProgram is requested.
type missingPrograms struct{ requests *lru.Cache }

// programRequests are the times of the first and the last request of a host that retries.
type programRequests struct{ first, last time.Time }

func newMissingPrograms() missingPrograms { return missingPrograms{lru.New(maxMissingPrograms)} }

// since returns for how long a missing program has been requested again and again.
func (m missingPrograms) since(missing missingProgram, now time.Time) time.Duration {
	requests := programRequests{first: now}
	if known, ok := m.requests.Get(missing); ok && now.Sub(known.(programRequests).last) <= maxProgramPause {
		requests = known.(programRequests)
	}
	requests.last = now
	m.requests.Add(missing, requests)
	return now.Sub(requests.first)
}
