package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// refusal is an answer other than success. It is written as JSON: {"error": a word, "message": a sentence with the
// remedy}.
type refusal struct {
	code    int
	Word    string `json:"error"`
	Message string `json:"message"`
	cause   error  // for the log only: it can contain details that are not for hosts
}

func (r *refusal) Error() string { return r.Message }

func (r *refusal) Unwrap() error { return r.cause }

func newRefusal(code int, word, format string, args ...any) *refusal {
	return &refusal{code: code, Word: word, Message: fmt.Sprintf(format, args...)}
}

func unauthorized(message string) *refusal {
	return newRefusal(http.StatusUnauthorized, "Unauthorized", "%s", message)
}

func forbidden(format string, args ...any) *refusal {
	return newRefusal(http.StatusForbidden, "Forbidden", format, args...)
}

func notReady(format string, args ...any) *refusal {
	return newRefusal(http.StatusServiceUnavailable, "NotReady", format, args...)
}

// stateUnknown returns the refusal for a token in an unknown state, perhaps of a later version of Poolboot. The token
// is not accepted, and the host can retry.
func stateUnknown(record *Record) *refusal {
	return notReady("the annotation %s of PoolbootConfig %s has a value that this config server does not support: upgrade Poolboot, or rotate the token",
		bootstrapv1.TokenStateAnnotation, record.NamespacedName)
}

// unavailable returns the refusal if the server cannot answer at the moment, for a cause that only the log names.
func unavailable(cause error) *refusal {
	refused := newRefusal(http.StatusServiceUnavailable, "Unavailable", "the config server can't answer now. Its log has the cause. Try again")
	refused.cause = cause
	return refused
}

// refusalOf returns the refusal that an error is or wraps, or nil.
func refusalOf(err error) *refusal {
	if err == nil {
		return nil // without an allocation
	}
	var refused *refusal
	errors.As(err, &refused)
	return refused
}

// retryAfter has the values of the Retry-After header, in seconds. Each answer has a random one, to spread the retries
// of hosts that are powered on at the same time.
var retryAfter = [...][]string{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}}

func (r *refusal) write(w http.ResponseWriter) {
	body, err := json.Marshal(r)
	if err != nil {
		body = []byte(`{}`) // two strings always encode
	}
	h := w.Header()
	h["Content-Type"] = typeJSON
	h["Cache-Control"] = noStore
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.code < http.StatusInternalServerError { // a request that can never succeed needs no connection for a retry
		h.Set("Connection", "close")
	}
	switch r.code {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="poolboot"`)
	case http.StatusServiceUnavailable:
		h["Retry-After"] = retryAfter[rand.IntN(len(retryAfter))]
	}
	w.WriteHeader(r.code)
	_, _ = w.Write(body)
}
