package host

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// keptLines is the number of console lines in an error.
const keptLines = 12

// console collects the output of a host's programs.
type console struct {
	mu   sync.Mutex
	file *os.File
	log  io.Writer
	name string
	last []string
}

func openConsole(options Options) (*console, error) {
	path := filepath.Join(options.Dir, "console.log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &console{file: file, log: options.Log, name: options.Name}, err
}

// Close closes the console's file.
func (c *console) Close() { _ = c.file.Close() }

// of returns a writer for a program, which prefixes each line with the program's name.
func (c *console) of(program string) io.Writer { return &consoleLines{console: c, program: program} }

// lastLines returns the last lines, for errors.
func (c *console) lastLines() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.last, "")
}

func (c *console) print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(c.file, line)
	if c.log != nil {
		_, _ = io.WriteString(c.log, "["+c.name+"] "+line)
	}
	c.last = append(c.last, line)
	if len(c.last) > keptLines {
		c.last = slices.Delete(c.last, 0, len(c.last)-keptLines)
	}
}

// consoleLines splits a program's output into lines. It is not safe for concurrent use.
type consoleLines struct {
	console *console
	program string
	begun   []byte
}

// Write prints complete lines and keeps the rest for the next Write.
func (l *consoleLines) Write(text []byte) (int, error) {
	l.begun = append(l.begun, text...)
	for {
		end := bytes.IndexByte(l.begun, '\n')
		if end < 0 {
			return len(text), nil
		}
		l.console.print(l.program + ": " + string(l.begun[:end+1]))
		l.begun = l.begun[end+1:]
	}
}
