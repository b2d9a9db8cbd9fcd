package tools

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
)

func agent(allow []string, devices ...string) *v1alpha1.Agent {
	return &v1alpha1.Agent{Spec: v1alpha1.AgentSpec{Tools: v1alpha1.Tools{Allow: allow}, Devices: devices}}
}

func TestOf(t *testing.T) {
	tests := map[string]struct {
		agent *v1alpha1.Agent
		want  []string
	}{
		"finish is always there":           {agent(nil), []string{"finish"}},
		"everything":                       {agent([]string{"fs.read", "fs.write", "fs.list", "fs.stat", "exec", "submit_plan", "ask_human"}, "web1"), []string{"finish", "ask_human", "exec", "fs_list", "fs_read", "fs_stat", "fs_write", "submit_plan"}},
		"no device, no device tools":       {agent([]string{"fs.read", "submit_plan", "ask_human"}), []string{"finish", "ask_human"}},
		"unknown tools do not exist":       {agent([]string{"fs.delete", "fs_read"}, "web1"), []string{"finish"}},
		"a plan needs something to submit": {agent([]string{"submit_plan"}, "web1"), []string{"finish"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, tool := range Of(tt.agent) {
				got = append(got, tool.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	all := map[string]Tool{}
	for _, tool := range Of(agent(append(slices.DeleteFunc(manifest.Capabilities(), func(c string) bool { return c == manifest.FSList }), "submit_plan", "ask_human"), "web1", "db1")) {
		all[tool.Name] = tool
	}
	step := `{"device":"web1","capability":"fs.write","args":{"path":"/a","content":"x"}}`
	tests := map[string]struct {
		tool, raw string
		want      string // canonical form; empty: refused
		says      string
	}{
		"good":                  {tool: "fs_read", raw: ` {"path":"/a","device":"web1"} `, want: `{"device":"web1","path":"/a"}`},
		"integer":               {tool: "fs_read", raw: `{"device":"db1","path":"/a","limit":5}`, want: `{"device":"db1","limit":5,"path":"/a"}`},
		"no arguments":          {tool: "fs_read", raw: ``, says: "missing properties"},
		"null":                  {tool: "fs_read", raw: `null`, says: "want object"},
		"device is missing":     {tool: "fs_read", raw: `{"path":"/a"}`, says: "device"},
		"other device":          {tool: "fs_read", raw: `{"device":"mail1","path":"/a"}`, says: "'web1'"},
		"one more field":        {tool: "fs_read", raw: `{"device":"web1","path":"/a","follow":true}`, says: "follow"},
		"number as string":      {tool: "fs_read", raw: `{"device":"web1","path":"/a","limit":"5"}`, says: "want integer"},
		"not JSON":              {tool: "fs_read", raw: `{"path":`, says: "EOF"},
		"two values":            {tool: "fs_read", raw: `{"device":"web1","path":"/a"}{}`, says: "after the value"},
		"duplicate key":         {tool: "fs_read", raw: `{"device":"web1","path":"/a","path":"/b"}`, says: `duplicate key "path"`},
		"hidden duplicate key":  {tool: "fs_read", raw: `{"device":"web1","path":"/a","p\u0061th":"/b"}`, says: `duplicate key "path"`},
		"float":                 {tool: "fs_read", raw: `{"device":"web1","path":"/a","limit":5.0}`, says: "float"},
		"huge integer":          {tool: "fs_read", raw: `{"device":"web1","path":"/a","limit":9007199254740992}`, says: "2^53"},
		"invalid UTF-8":         {tool: "fs_read", raw: "{\"device\":\"web1\",\"path\":\"/\xff\"}", says: "UTF-8"},
		"too long":              {tool: "fs_write", raw: `{"device":"web1","path":"/a","content":"` + strings.Repeat("x", MaxArguments) + `"}`, says: "bytes"},
		"empty argv":            {tool: "exec", raw: `{"device":"web1","argv":[]}`, says: "minItems"},
		"plan":                  {tool: "submit_plan", raw: `{"reason":"","steps":[` + step + `]}`, want: `{"reason":"","steps":[{"args":{"content":"x","path":"/a"},"capability":"fs.write","device":"web1"}]}`},
		"plan without steps":    {tool: "submit_plan", raw: `{"reason":"x","steps":[]}`, says: "minItems"},
		"plan with 51 steps":    {tool: "submit_plan", raw: `{"reason":"x","steps":[` + strings.Repeat(step+",", 50) + step + `]}`, says: "maxItems"},
		"plan with other tool":  {tool: "submit_plan", raw: `{"reason":"x","steps":[{"device":"web1","capability":"fs.list","args":{}}]}`, says: "capability"},
		"step with string args": {tool: "submit_plan", raw: `{"reason":"x","steps":[{"device":"web1","capability":"exec","args":"{}"}]}`, says: "want object"},
		"no field but device":   {tool: "display_capture", raw: `{"device":"web1"}`, want: `{"device":"web1"}`},
		"field where none is":   {tool: "display_capture", raw: `{"device":"web1","display":":1"}`, says: "display"},
		"name with many dots":   {tool: "docker_container_logs", raw: `{"device":"web1","container":"web","tail":5}`, want: `{"container":"web","device":"web1","tail":5}`},
		"too much of a log":     {tool: "docker_container_logs", raw: `{"device":"web1","container":"web","tail":10001}`, says: "maximum"},
		"package twice":         {tool: "pkg_install", raw: `{"device":"web1","names":["a","a"]}`, says: "are equal"},
		"process without start": {tool: "proc_kill", raw: `{"device":"web1","pid":77}`, says: "start"},
		"process with a number": {tool: "proc_kill", raw: `{"device":"web1","pid":77,"start":123}`, says: "want string"},
		"signal by number":      {tool: "proc_kill", raw: `{"device":"web1","pid":77,"start":"1@00000000","signal":"9"}`, says: "TERM"},
		"commit of nothing":     {tool: "git_commit", raw: `{"device":"web1","path":"/a","files":[],"message":"x"}`, says: "minItems"},
		"push with force":       {tool: "git_push", raw: `{"device":"web1","path":"/a","url":"https://h/x","branch":"main","force":true}`, says: "force"},
		"clone":                 {tool: "git_clone", raw: `{"device":"web1","path":"/a","url":"https://h/x"}`, want: `{"device":"web1","path":"/a","url":"https://h/x"}`},
		"clipboard":             {tool: "clipboard_write", raw: `{"device":"web1","content":""}`, says: "minLength"},
		"empty question":        {tool: "ask_human", raw: `{"question":""}`, says: "minLength"},
		"finish":                {tool: "finish", raw: `{"summary":"done"}`, want: `{"summary":"done"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := all[tt.tool].Arguments(json.RawMessage(tt.raw))
			if tt.want != "" {
				if err != nil || string(got) != tt.want {
					t.Fatalf("got %s, %v, want %s", got, err, tt.want)
				}
				return
			}
			if !errors.Is(err, ErrArguments) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("err = %v, want one that says %q", err, tt.says)
			}
			if strings.Contains(err.Error(), "nisse:arguments") || strings.Contains(err.Error(), "\n") {
				t.Errorf("not a sentence for a model: %v", err)
			}
		})
	}
}
