package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
)

// refusal is any answer but success. It is written as JSON: {"error": a word, "message": a sentence with the cure}.
type refusal struct {
	code    int
	Word    string `json:"error"`
	Message string `json:"message"`
	cause   error  // for the log only: it may name things that a host has no business with
}

func (r *refusal) Error() string { return r.Message }

func (r *refusal) Unwrap() error { return r.cause }

func unauthorized(message string) *refusal {
	return &refusal{code: http.StatusUnauthorized, Word: "Unauthorized", Message: message}
}

func notReady(format string, args ...any) *refusal {
	return &refusal{code: http.StatusServiceUnavailable, Word: "NotReady", Message: fmt.Sprintf(format, args...)}
}

// unavailable is for what the server itself lacks at the moment.
func unavailable(cause error) *refusal {
	return &refusal{
		code: http.StatusServiceUnavailable, Word: "Unavailable",
		Message: "the config server can't answer now; its log says why. Try again.", cause: cause,
	}
}

// maxRetryAfter bounds Retry-After, in seconds. It is spread so that hosts powered on together don't come back together.
const maxRetryAfter = 5

func (r *refusal) write(w http.ResponseWriter) {
	body, err := json.Marshal(r)
	if err != nil {
		body = []byte(`{}`) // two strings always encode
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	if r.code < http.StatusInternalServerError { // who asks for what can never succeed need not keep a connection
		h.Set("Connection", "close")
	}
	switch r.code {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="poolboot"`)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(1+rand.IntN(maxRetryAfter)))
	case http.StatusMethodNotAllowed:
		h.Set("Allow", "GET, HEAD")
	}
	w.WriteHeader(r.code)
	_, _ = w.Write(body)
}
