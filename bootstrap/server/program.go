package server

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"net/http"
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
// An unknown hash can be known to another replica during an upgrade. 404 would end the boot, so the host can retry.
func (v *view) serveProgram(ctx context.Context, w http.ResponseWriter, r *http.Request, target route) error {
	if v.opts.Programs != nil {
		if program, ok := v.opts.Programs.byHash[target.sha512]; ok {
			limitWriteBuffer(ctx)
			return writeFile(w, r, program, cachePublicly)
		}
	}
	return notReady("this replica does not have the agent with this hash: during an upgrade of Poolboot, another replica can have it. If this persists, " +
		"start again from the URL in the host's user data: power the host off and on")
}
