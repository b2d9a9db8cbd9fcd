package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Policy of the audit log: every request that could write, and nothing else.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: %s
`

// Request that could write, from the API server's audit log.
type Request struct {
	// User who wrote, impersonated or not.
	User string
	Verb string
	// Kind is the resource with its subresource, such as gates/status.
	Kind      string
	Namespace string
	Name      string
	Code      int
	DryRun    bool
	// Received and Answered by the API server.
	Received time.Time
	Answered time.Time
	// Body, if the policy keeps it.
	Body json.RawMessage
}

// Kept tells whether a request changed what is stored: reviews and dry runs store nothing, and a refused one neither.
func (r Request) Kept() bool {
	return r.Code >= 200 && r.Code < 300 && !r.DryRun && !strings.HasSuffix(r.Kind, "reviews") && r.Kind != "serviceaccounts/token"
}

// Lease tells whether it is a lease, the one kind that is renewed while nothing happens.
func (r Request) Lease() bool { return r.Kind == "leases" }

// ReadAudit reads an audit log from an offset, and returns where it ends. A last line that is not whole yet is left for later.
func ReadAudit(path string, from int64) ([]Request, int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, from, err
	}
	b = b[from:]
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	var out []Request
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		r, err := parseAudit(lines.Bytes())
		if err != nil {
			return nil, from, err
		}
		out = append(out, r)
	}
	return out, from + int64(len(b)), lines.Err()
}

func parseAudit(line []byte) (Request, error) {
	var e struct {
		Verb       string `json:"verb"`
		RequestURI string `json:"requestURI"`
		User       struct {
			Username string `json:"username"`
		} `json:"user"`
		ImpersonatedUser *struct {
			Username string `json:"username"`
		} `json:"impersonatedUser"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
		} `json:"objectRef"`
		ResponseStatus struct {
			Code int `json:"code"`
		} `json:"responseStatus"`
		RequestReceivedTimestamp time.Time       `json:"requestReceivedTimestamp"`
		StageTimestamp           time.Time       `json:"stageTimestamp"`
		RequestObject            json.RawMessage `json:"requestObject"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return Request{}, fmt.Errorf("read the audit log: %w", err)
	}
	r := Request{User: e.User.Username, Verb: e.Verb, Kind: e.ObjectRef.Resource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code,
		DryRun: strings.Contains(e.RequestURI, "dryRun="), Received: e.RequestReceivedTimestamp, Answered: e.StageTimestamp, Body: e.RequestObject}
	if e.ImpersonatedUser != nil {
		r.User = e.ImpersonatedUser.Username
	}
	if e.ObjectRef.Subresource != "" {
		r.Kind += "/" + e.ObjectRef.Subresource
	}
	return r, nil
}

// Count of equal writes.
type Count struct {
	Who, Verb, Kind string
	N               int
}

// Counts groups requests by who, verb and kind.
func Counts(all []Request) []Count {
	by := map[Count]int{}
	for _, r := range all {
		by[Count{Who: r.User[strings.LastIndex(r.User, ":")+1:], Verb: r.Verb, Kind: r.Kind}]++
	}
	var out []Count
	for c, n := range by {
		c.N = n
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Who, b.Who), cmp.Compare(a.Verb, b.Verb))
	})
	return out
}
