package scriptedmodel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"nisse.io/nisse/test/scriptedmodel"
)

// runtime stands for an agent's runtime: it keeps the messages, runs the tools it offers, and ends a turn where the model
// says something without calling anything, submits a plan or finishes.
type runtime struct {
	client   openai.Client
	stream   bool
	tools    map[string]string // what each gives
	messages []openai.ChatCompletionMessageParamUnion
}

func newRuntime(t *testing.T, m *scriptedmodel.Running, stream bool) *runtime {
	t.Helper()
	return &runtime{
		client:   openai.NewClient(option.WithBaseURL(m.BaseURL), option.WithAPIKey(m.Key), option.WithMaxRetries(0)),
		stream:   stream,
		messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("You are ops.")},
		tools: map[string]string{
			"fs_list":     `{"status":"done","output":{"entries":[{"name":"notes.txt","kind":"file"},{"name":"old","kind":"directory"}],"truncated":false}}`,
			"exec":        `{"status":"done","output":{"exitCode":0,"stdout":"Filesystem  Size  Use%\noverlay  40G  12% <&>\n","stderr":"","encoding":"utf-8"}}`,
			"fs_write":    `{"status":"done","step":1,"output":{"path":"/srv/nisse/report.txt","bytes":53,"created":true}}`,
			"submit_plan": `{"status":"done","revision":1,"gate":"wi-1-rev-1"}`,
			"finish":      `{"status":"done"}`,
		},
	}
}

// hear adds a message of role user and lets the model go on until the turn ends. It returns what the model did.
func (r *runtime) hear(ctx context.Context, text string) (did []string, err error) {
	r.messages = append(r.messages, openai.UserMessage(text))
	for range 10 {
		answer, err := r.ask(ctx)
		if err != nil {
			return did, err
		}
		r.messages = append(r.messages, answer.ToParam())
		if answer.Content != "" {
			did = append(did, "says "+answer.Content)
		}
		ends := len(answer.ToolCalls) == 0
		for _, call := range answer.ToolCalls {
			did = append(did, call.Function.Name+" "+call.Function.Arguments)
			result, offered := r.tools[call.Function.Name]
			if !offered {
				result = `{"status":"refused","message":"there is no such tool"}`
			}
			r.messages = append(r.messages, openai.ToolMessage(result, call.ID))
			over := strings.Contains(result, `"done"`) && (call.Function.Name == "submit_plan" || call.Function.Name == "finish")
			ends = ends || over || strings.Contains(result, `"halted"`)
		}
		if ends {
			return did, nil
		}
	}
	return did, fmt.Errorf("ten answers and no end")
}

func (r *runtime) ask(ctx context.Context) (openai.ChatCompletionMessage, error) {
	params := openai.ChatCompletionNewParams{Model: "scripted", Messages: r.messages}
	for name := range r.tools {
		params.Tools = append(params.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: name, Parameters: shared.FunctionParameters{"type": "object"},
		}))
	}
	if !r.stream {
		res, err := r.client.Chat.Completions.New(ctx, params)
		if err != nil {
			return openai.ChatCompletionMessage{}, err
		}
		return res.Choices[0].Message, nil
	}
	stream := r.client.Chat.Completions.NewStreaming(ctx, params)
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			return openai.ChatCompletionMessage{}, fmt.Errorf("chunk %s does not follow", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	return all.Choices[0].Message, nil
}

const (
	df      = `"content":"Filesystem  Size  Use%\noverlay  40G  12% <&>\n"`
	plan    = `submit_plan {"reason":"The disk usage as df reports it now.","steps":[{"args":{` + df + `,"path":"/srv/nisse/report.txt"},"capability":"fs.write","device":"web1"}]}`
	write   = `fs_write {` + df + `,"device":"web1","path":"/srv/nisse/report.txt"}`
	look    = `fs_list {"device":"web1","path":"/srv/nisse"}`
	measure = `exec {"argv":["/usr/bin/df","-h"],"device":"web1"}`
)

// Every way through the demo, over the wire with OpenAI's own client.
func TestDemoWalksThrough(t *testing.T) {
	type turn struct {
		hears string
		tools map[string]string // results that differ from here on
		does  []string
	}
	ask := turn{
		hears: "Write the disk usage of the machine into /srv/nisse/report.txt",
		does:  []string{"says Reading the disk usage.", look, measure, plan},
	}
	for _, tc := range []struct {
		name  string
		turns []turn
	}{
		{"report, approved", []turn{
			ask,
			{hears: "Plan rev-1 was approved by lucas. Make its calls now, in order.", does: []string{
				write, `finish {"summary":"The disk usage is in /srv/nisse/report.txt: 53 bytes."}`,
			}},
		}},
		{"report in two files, approved", []turn{
			{hears: "lucas: Write the disk usage of the machine into /srv/nisse/report.txt and /srv/nisse/copy.txt.", does: []string{
				"says Reading the disk usage.", look, measure,
				`submit_plan {"reason":"The disk usage as df reports it now, and a copy of it.","steps":[{"args":{` + df +
					`,"path":"/srv/nisse/report.txt"},"capability":"fs.write","device":"web1"},{"args":{` + df +
					`,"path":"/srv/nisse/copy.txt"},"capability":"fs.write","device":"web1"}]}`,
			}},
			{hears: "lucas approved plan rev-1.", does: []string{
				write, `fs_write {` + df + `,"device":"web1","path":"/srv/nisse/copy.txt"}`,
				`finish {"summary":"The disk usage is in /srv/nisse/report.txt, /srv/nisse/copy.txt: 53 bytes."}`,
			}},
		}},
		{"a plan in so many words", []turn{
			{hears: `lucas: Do exactly this plan: {"reason": "So.", "steps": [{"device": "web2", "capability": "git.status", "args": {"path": "/src/tool"}}, {"device": "web2", "capability": "proc.list", "args": {}}]}`,
				tools: map[string]string{"git_status": `{"status":"done","step":1}`, "proc_list": `{"status":"done","step":2}`},
				does:  []string{`submit_plan {"reason": "So.", "steps": [{"device": "web2", "capability": "git.status", "args": {"path": "/src/tool"}}, {"device": "web2", "capability": "proc.list", "args": {}}]}`}},
			{hears: "lucas approved plan rev-1.", does: []string{
				`git_status {"device":"web2","path":"/src/tool"}`, `proc_list {"device":"web2"}`, `finish {"summary":"All of the plan ran."}`,
			}},
		}},
		{"report, another path wanted", []turn{
			ask,
			{hears: "Plan rev-1 was rejected by lucas: \"use /srv/nisse/daily.txt instead\"", does: []string{
				"says Then into /srv/nisse/daily.txt.",
				`submit_plan {"reason":"The disk usage as it was just read, into the file that was asked for instead.","steps":[{"args":{` + df +
					`,"path":"/srv/nisse/daily.txt"},"capability":"fs.write","device":"web1"}]}`,
			}},
			{hears: "Plan rev-2 was approved by lucas.", does: []string{
				`fs_write {` + df + `,"device":"web1","path":"/srv/nisse/daily.txt"}`,
				`finish {"summary":"The disk usage is in /srv/nisse/daily.txt: 53 bytes."}`,
			}},
		}},
		{"report, rejected", []turn{
			ask,
			{hears: "Plan rev-1 was rejected by lucas: \"no\"", does: []string{`finish {"summary":"Nothing was written."}`}},
		}},
		{"report, expired", []turn{
			ask,
			{hears: "Plan rev-1 expired; nobody answered.", does: []string{`finish {"summary":"Nothing was written."}`}},
		}},
		{"off by one, replanned", []turn{
			{hears: ask.hears + ", off-by-one please", does: ask.does},
			{
				hears: "Plan rev-1 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"halted","message":"Step 1 wants another path."}`},
				does:  []string{strings.Replace(write, "report.txt", "report.txts", 1)},
			},
			{hears: "lucas answered the halt: replan", does: []string{
				"says I will plan again, and keep to it.",
				strings.Replace(plan, "The disk usage as df reports it now.", "The same report, planned again after the halt.", 1),
			}},
			{
				hears: "Plan rev-2 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"done","step":1,"output":{"path":"/srv/nisse/report.txt","bytes":53,"created":true}}`},
				does:  []string{write, `finish {"summary":"The disk usage is in /srv/nisse/report.txt: 53 bytes."}`},
			},
		}},
		{"off by one, replanned into another file", []turn{
			{hears: ask.hears + ", off-by-one please", does: ask.does},
			{
				hears: "Plan rev-1 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"halted","message":"Step 1 wants another path."}`},
				does:  []string{strings.Replace(write, "report.txt", "report.txts", 1)},
			},
			{hears: "lucas answered: replan. The plan so far is closed and will not run. They wrote:\n> write it into /srv/nisse/other.txt", does: []string{
				"says Then into /srv/nisse/other.txt.",
				strings.NewReplacer("The disk usage as df reports it now.", "The disk usage as it was just read, into the file that was asked for instead.",
					"report.txt", "other.txt").Replace(plan),
			}},
			{
				hears: "Plan rev-2 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"done","step":1,"output":{"path":"/srv/nisse/other.txt","bytes":53,"created":true}}`},
				does:  []string{strings.Replace(write, "report.txt", "other.txt", 1), `finish {"summary":"The disk usage is in /srv/nisse/other.txt: 53 bytes."}`},
			},
		}},
		{"off by one, continued", []turn{
			{hears: ask.hears + " (off-by-one)", does: ask.does},
			{
				hears: "Plan rev-1 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"halted"}`},
				does:  []string{strings.Replace(write, "report.txt", "report.txts", 1)},
			},
			{
				hears: "lucas answered the halt: continue",
				tools: map[string]string{"fs_write": `{"status":"done","step":1,"output":{"bytes":53}}`},
				does:  []string{write, `finish {"summary":"The disk usage is in /srv/nisse/report.txt: 53 bytes."}`},
			},
		}},
		{"outcome unknown, continued", []turn{
			ask,
			{
				hears: "Plan rev-1 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"unknown","message":"The device stopped while this ran."}`},
				does:  []string{write, "says Nobody can tell whether that ran; a person must look."},
			},
			{hears: "lucas answered the halt: continue", does: []string{
				write, `finish {"summary":"Nobody can tell whether /srv/nisse/report.txt was written, and I did not write it again."}`,
			}},
		}},
		{"stopped while it read, continued", []turn{
			{
				hears: ask.hears,
				tools: map[string]string{"exec": `{"status":"halted","message":"A person said stop."}`},
				does:  []string{"says Reading the disk usage.", look, measure},
			},
			{
				hears: "lucas answered the stop: continue",
				tools: map[string]string{"exec": `{"status":"done","output":{"stdout":"Filesystem  Size  Use%\noverlay  40G  12% <&>\n"}}`},
				does:  ask.does,
			},
		}},
		{"restarted between approval and call", []turn{
			ask,
			{
				hears: "Plan rev-1 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"halted"}`},
				does:  []string{write},
			},
			{
				hears: "The runtime restarted.",
				tools: map[string]string{"fs_write": `{"status":"done","output":{"bytes":53}}`},
				does:  []string{"says I am stopped until a person answers."},
			},
			{hears: "lucas answered the halt: continue", does: []string{
				write, `finish {"summary":"The disk usage is in /srv/nisse/report.txt: 53 bytes."}`,
			}},
		}},
		{"off by one, abandoned", []turn{
			{hears: ask.hears + " off-by-one", does: ask.does},
			{
				hears: "Plan rev-1 was approved by lucas.",
				tools: map[string]string{"fs_write": `{"status":"halted"}`},
				does:  []string{strings.Replace(write, "report.txt", "report.txts", 1)},
			},
			{hears: "lucas answered the halt: abandon", does: []string{"says I leave it at that."}},
		}},
		{"listing", []turn{{hears: "what is in /srv/nisse?", does: []string{
			look, `finish {"summary":"In /srv/nisse: notes.txt, old."}`,
		}}}},
		{"listing of nothing", []turn{{
			hears: "what is in /srv/nisse?",
			tools: map[string]string{"fs_list": `{"status":"done","output":{"entries":[],"truncated":false}}`},
			does:  []string{look, `finish {"summary":"/srv/nisse is empty."}`},
		}}},
		{"a tool refuses", []turn{{
			hears: "what is in /root?",
			tools: map[string]string{"fs_list": `{"status":"refused","reason":"PathDenied","message":"no rule allows /root"}`},
			does: []string{
				`fs_list {"device":"web1","path":"/root"}`,
				`finish {"summary":"It did not work (refused): no rule allows /root"}`,
			},
		}}},
		{"the command fails", []turn{{
			hears: ask.hears,
			tools: map[string]string{"exec": `{"status":"failed","output":{"exitCode":1,"stderr":"df: no file systems processed"}}`},
			does: []string{
				"says Reading the disk usage.", look, measure,
				`finish {"summary":"It did not work (failed): df: no file systems processed"}`,
			},
		}}},
		{"anything else", []turn{{hears: "sing!", does: []string{
			`finish {"summary":"I am a scripted model and understand two requests:\n\"Write the disk usage of the machine into /srv/nisse/report.txt\" and \"what is in /srv/nisse?\"."}`,
		}}}},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", tc.name, stream), func(t *testing.T) {
				scenario, err := scriptedmodel.Demo()
				if err != nil {
					t.Fatal(err)
				}
				r := newRuntime(t, scriptedmodel.Start(t, scenario), stream)
				for _, turn := range tc.turns {
					for name, result := range turn.tools {
						r.tools[name] = result
					}
					did, err := r.hear(t.Context(), turn.hears)
					if err != nil {
						t.Fatalf("after %q: %v", turn.hears, err)
					}
					if diff := cmp.Diff(turn.does, did); diff != "" {
						t.Fatalf("after %q, -want +got:\n%s", turn.hears, diff)
					}
				}
			})
		}
	}
}

// A schema that names the devices is believed before the scenario's variable.
func TestDemoTakesTheDeviceFromTheTools(t *testing.T) {
	scenario, err := scriptedmodel.Demo()
	if err != nil {
		t.Fatal(err)
	}
	m := scriptedmodel.Start(t, scenario)
	client := openai.NewClient(option.WithBaseURL(m.BaseURL), option.WithAPIKey(m.Key))
	res, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model:    "scripted",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("what is in /srv/nisse?")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "fs_list",
			Parameters: shared.FunctionParameters{
				"type": "object", "properties": map[string]any{"device": map[string]any{"enum": []string{"machine", "other"}}},
			},
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	var args struct{ Device string }
	if err := json.Unmarshal([]byte(res.Choices[0].Message.ToolCalls[0].Function.Arguments), &args); err != nil {
		t.Fatal(err)
	}
	if args.Device != "machine" {
		t.Errorf("device %q", args.Device)
	}
}
