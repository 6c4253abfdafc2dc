package command

import (
	"bytes"
	"strings"
	"sync"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// head keeps the beginning of what is written to it. A program that writes more gets an error.
type head struct {
	mutex    sync.Mutex
	contents []byte
	over     bool
}

func (h *head) Write(data []byte) (int, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	kept := min(len(data), maxOutput-len(h.contents))
	h.contents = append(h.contents, data[:kept]...)
	if kept < len(data) {
		h.over = true
		return kept, ErrTooMuchOutput
	}
	return kept, nil
}

func (h *head) isOver() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.over
}

func (h *head) bytes() []byte {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return bytes.Clone(h.contents)
}

// tail keeps the end of what is written to it.
type tail struct {
	mutex    sync.Mutex
	contents []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	rest := data[max(0, len(data)-maxMessage):]
	t.contents = append(t.contents, rest...)
	t.contents = append(t.contents[:0], t.contents[max(0, len(t.contents)-maxMessage):]...)
	return len(data), nil
}

// String returns the text, without characters that could confuse a terminal or a log.
func (t *tail) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return strings.TrimSpace(excerpt.Printable(string(t.contents)))
}
