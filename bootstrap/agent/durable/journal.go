package durable

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// JournalError is a journal that can't be used.
type JournalError struct{ Path, Why, Remedy string }

func (e *JournalError) Error() string {
	return fmt.Sprintf("journal %s: %s: %s", e.Path, e.Why, e.Remedy)
}

// StartOver is the remedy for a journal that is damaged or missing.
const StartOver = "do not edit it. Restore it from a backup, or move the journals and the slots of Poolboot away and restart " +
	"poolboot-agent.service, which then starts from the configuration that the host should have and reports what differs"

// EncodeJournal returns a journal in JSON, after a header with the version of its format and the hash of the rest.
func EncodeJournal(version int, journal any) ([]byte, error) {
	body, err := json.Marshal(journal)
	if err != nil {
		return nil, err
	}
	return append([]byte(headerOf(version, body)+"\n"), body...), nil
}

// DecodeJournal is the inverse of EncodeJournal. It accepts only what that writes: whatever damages a journal, its hash
// is another one. The error is a *JournalError with the path.
func DecodeJournal[T any](path string, version int, data []byte) (*T, error) {
	refuse := func(why string) (*T, error) { return nil, &JournalError{path, why, StartOver} }
	header, body, _ := bytes.Cut(data, []byte("\n"))
	var written int
	if _, err := fmt.Sscanf(string(header), "poolboot-journal %d ", &written); err != nil {
		return refuse("it is truncated or not a journal")
	}
	if written > version {
		return nil, &JournalError{path, fmt.Sprintf("it was written by a newer agent (format %d, this agent knows %d)", written, version),
			"install that version of the agent again"}
	}
	if string(header) != headerOf(version, body) {
		return refuse("its checksum is wrong: it is truncated or damaged")
	}
	journal := new(T)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(journal); err != nil {
		return refuse("it is not valid JSON: " + err.Error())
	}
	return journal, nil
}

func headerOf(version int, body []byte) string {
	return fmt.Sprintf("poolboot-journal %d sha256:%x", version, sha256.Sum256(body))
}
