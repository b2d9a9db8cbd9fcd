package offer

import (
	"encoding/json"
	"strings"
	"testing"

	"nisse.io/nisse/agentruntime/doorclient"
)

func TestCheck(t *testing.T) {
	read := json.RawMessage(`{"type":"object","properties":{"device":{"enum":["web1"]},"path":{"type":"string"},"limit":{"type":"integer"}},"required":["device","path"],"additionalProperties":false}`)
	s, err := New([]doorclient.Tool{
		{Name: "fs_read", Schema: read}, {Name: "exec", Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "fs.read", Schema: read}, {Name: "exec", Schema: read}, {Name: "away", Schema: json.RawMessage(`{"$ref":"http://example.org/s.json"}`)}, {Name: "list", Schema: json.RawMessage(`[]`)},
	})
	for _, want := range []string{`"fs.read"`, `"exec"`, "tool away", "tool list"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	if got := s.Tools(); len(got) != 2 || got[0].Name != "exec" || got[1].Name != "fs_read" {
		t.Errorf("on offer: %v", got)
	}
	tests := map[string]struct{ tool, args, want string }{
		"good":           {"fs_read", `{"device":"web1","path":"/a"}`, ""},
		"unknown tool":   {"rm", `{}`, "there are: exec, fs_read"},
		"no JSON":        {"fs_read", `{"device"`, "not JSON"},
		"two values":     {"fs_read", `{} {}`, "not JSON"},
		"a list":         {"fs_read", `[]`, "not a JSON object"},
		"null":           {"fs_read", `null`, "not a JSON object"},
		"extra field":    {"fs_read", `{"device":"web1","path":"/a","sudo":true}`, "additional properties 'sudo' not allowed"},
		"missing":        {"fs_read", `{"device":"web1"}`, "missing property 'path'"},
		"other device":   {"fs_read", `{"device":"db1","path":"/a"}`, "/device: value must be"},
		"wrong type":     {"fs_read", `{"device":"web1","path":1}`, "/path: got number, want string"},
		"not an integer": {"fs_read", `{"device":"web1","path":"/a","limit":1.5}`, "/limit: got number, want integer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := s.Check(tt.tool, tt.args)
			if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
