package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Request is a request in the API server's audit log (audit.k8s.io/v1 Event).
type Request struct {
	Verb       string    `json:"verb"`
	RequestURI string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	Received   time.Time `json:"requestReceivedTimestamp"`
	Answered   time.Time `json:"stageTimestamp"`
	User       struct {
		Name string `json:"username"`
	} `json:"user"`
	// Impersonated is the impersonated user, if any.
	Impersonated struct {
		Name string `json:"username"`
	} `json:"impersonatedUser"`
	Object struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// Annotations are set by the API server, for example the role that allowed the request
	// (authorization.k8s.io/reason).
	Annotations map[string]string `json:"annotations"`
}

// Requests returns the answered requests so far, in the order of their answers. It requires Options.Audit.
func (c *ControlPlane) Requests() ([]Request, error) {
	var requests []Request
	err := c.EachRequest(func(request Request) { requests = append(requests, request) })
	return requests, err
}

// EachRequest calls a function with each request of Requests, without keeping all of them in memory.
func (c *ControlPlane) EachRequest(do func(Request)) error {
	if c.AuditLog == "" {
		return fmt.Errorf("control plane %q has no audit log: start it with Options.Audit", c.Name)
	}
	file, err := os.Open(c.AuditLog)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return nil // the end, or an incomplete line
		}
		var request Request
		if err := json.Unmarshal(line, &request); err != nil {
			return fmt.Errorf("%s, line %d: %w", c.AuditLog, number, err)
		}
		do(request)
	}
}
