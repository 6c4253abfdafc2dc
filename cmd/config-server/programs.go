package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

const (
	// programPrefix is the prefix of the names of the files in --agent-directory; the architecture follows.
	programPrefix = "poolboot-agent-"
	// maxProgramSize is the maximum size of an agent in bytes, before it is compressed.
	maxProgramSize = 64 << 20
	// maxPrograms is the maximum number of agents, which are all kept in memory.
	maxPrograms = 8
)

// readPrograms reads the agents in a directory. They are read once: a new agent comes with a new config server.
func readPrograms(directory string) (*server.Programs, error) {
	paths, err := filepath.Glob(filepath.Join(directory, programPrefix+"*"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 || len(paths) > maxPrograms {
		return nil, fmt.Errorf("%s has %d files %s<architecture>, and must have 1 to %d", directory, len(paths), programPrefix, maxPrograms)
	}
	var programs [][]byte
	for _, path := range paths {
		program, err := readProgram(path)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program)
	}
	return server.NewPrograms(programs...)
}

func readProgram(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	program, err := io.ReadAll(io.LimitReader(f, maxProgramSize+1))
	if err == nil && (len(program) == 0 || len(program) > maxProgramSize) {
		err = fmt.Errorf("%s is empty, or has more than %d bytes", path, maxProgramSize)
	}
	return program, err
}
