package command

import (
	"bytes"
	"strings"
	"sync"
)

// head keeps the beginning of what is written to it, and closes a channel when there is more.
type head struct {
	max      int
	overflow chan struct{}

	mutex    sync.Mutex
	contents []byte
	full     bool
}

func (h *head) Write(data []byte) (int, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	kept := min(len(data), h.max-len(h.contents))
	h.contents = append(h.contents, data[:kept]...)
	if kept < len(data) && !h.full {
		h.full = true
		close(h.overflow)
	}
	return len(data), nil
}

func (h *head) isFull() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.full
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
	return Clean(string(t.contents))
}

// Clean returns text of a program without line breaks at its ends, invalid UTF-8, and control characters but tabs and
// line breaks.
func Clean(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "")))
}
