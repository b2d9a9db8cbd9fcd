// Package mcp is the agents' tool server. Each agent sees the tools it is allowed and no others; every call is counted, its arguments
// are checked as raw bytes before anything reads them, and the answer says plainly what became of it.
package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/dispatch"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/live"
	"nisse.io/nisse/broker/meter"
	"nisse.io/nisse/broker/plan"
	"nisse.io/nisse/broker/report"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
	"nisse.io/nisse/internal/rates"
	"nisse.io/nisse/internal/sanitize"
)

const (
	// defaultCallsPerMinute of all tools together when the Agent sets no limit.
	defaultCallsPerMinute = 60
	// callTimeout bounds the longest call: a device's own limit is 300 s, and a lost answer is asked for after it.
	callTimeout = 6 * time.Minute
	// requestsPerSecond of an agent's pod at this server, tool calls or not.
	requestsPerSecond = 20
	requestsAtOnce    = 60
	// maxCallID keeps IDs within what an object may hold.
	maxCallID = 128
)

// Server of every agent's tools. All fields are required.
type Server struct {
	// Agents is read for the list of tools; a cache will do, since every call is judged by live objects.
	Agents     client.Reader
	Live       live.Reader
	Dispatcher *dispatch.Dispatcher
	Plans      *plan.Submitter
	Report     report.Writer
	Calls      *rates.Buckets
	Requests   *rates.Buckets
	Meter      *meter.Meter
	Log        *slog.Logger
	Namespace  string
	Version    string
}

type agentKey struct{}

// Handler serves MCP (streamable HTTP, without sessions) to pods that podauth let through.
func (s *Server) Handler() http.Handler {
	h := sdk.NewStreamableHTTPHandler(s.server, &sdk.StreamableHTTPOptions{
		Stateless: true, MaxRequestBodyBytes: 2 * tools.MaxArguments, Logger: slog.New(slog.DiscardHandler),
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := podauth.Rate{Buckets: s.Requests, PerSecond: requestsPerSecond, AtOnce: requestsAtOnce, Message: "too many requests; slow down"}.Admit(w, r)
		if !ok {
			return
		}
		a := &v1alpha1.Agent{}
		err := s.Agents.Get(r.Context(), client.ObjectKey{Namespace: s.Namespace, Name: id.Agent}, a)
		switch {
		case apierrors.IsNotFound(err):
			podauth.Problem(w, http.StatusForbidden, "AgentNotFound", "there is no Agent "+id.Agent)
			return
		case err != nil:
			podauth.Problem(w, http.StatusServiceUnavailable, "Unavailable", "the cluster cannot be read now; try again")
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), agentKey{}, a)))
	})
}

// server of one request.
func (s *Server) server(r *http.Request) *sdk.Server {
	a := r.Context().Value(agentKey{}).(*v1alpha1.Agent) // Handler put it there
	srv := sdk.NewServer(&sdk.Implementation{Name: "nisse-broker", Version: s.Version}, &sdk.ServerOptions{Logger: slog.New(slog.DiscardHandler), Capabilities: &sdk.ServerCapabilities{}})
	for _, t := range tools.Of(a) {
		srv.AddTool(&sdk.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema}, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			// What was begun is carried out and written down, whether or not the caller still waits for it.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
			defer cancel()
			if token := req.Params.GetProgressToken(); token != nil {
				ctx = dispatch.Watch(ctx, notifier(ctx, req.Session, token))
			}
			res, err := s.call(ctx, a, t, req.Params)
			if err != nil {
				s.Log.Error("tool.failed", "agent", a.Name, "tool", t.Name, "err", err)
				return nil, errors.New("the broker cannot tell what became of this call; make it again with the same call ID")
			}
			s.Meter.Call(t.Name, res)
			return wrap(res)
		})
	}
	return srv
}

// notifier tells the caller, under the token of its call, what the call has written. Whoever has gone away is told nothing.
func notifier(ctx context.Context, to *sdk.ServerSession, token any) func(line string) {
	told := 0.0
	return func(line string) {
		told++
		_ = to.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: told, Message: line}) // lost progress is no error
	}
}

func wrap(res doors.ToolResult) (*sdk.CallToolResult, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // for the model's eyes
	if err := e.Encode(res); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	b := bytes.TrimSpace(text.Bytes())
	return &sdk.CallToolResult{
		Content: []sdk.Content{&sdk.TextContent{Text: string(b)}}, StructuredContent: json.RawMessage(b),
		IsError: res.Status == doors.Refused || res.Status == doors.Failed,
	}, nil
}

// call of a tool that exists for the agent.
func (s *Server) call(ctx context.Context, a *v1alpha1.Agent, t tools.Tool, p *sdk.CallToolParamsRaw) (doors.ToolResult, error) {
	perMinute := defaultCallsPerMinute
	if l := a.Spec.Limits; l != nil && l.ToolCallsPerMinute != nil {
		perMinute = int(*l.ToolCallsPerMinute)
	}
	if wait, ok := s.Calls.Take(a.Name, float64(perMinute)/60, perMinute); !ok {
		return refused("RateLimited", fmt.Sprintf("More than %d calls in a minute. Nothing was run; call again in %d s.", perMinute, int(wait.Seconds())+1)), nil
	}
	id, err := meta(p.Meta, doors.MetaCallID)
	if err != nil {
		return refused(judge.BadArguments, err.Error()), nil
	}
	item, err := meta(p.Meta, doors.MetaWorkItem)
	if err != nil {
		return refused(judge.BadArguments, err.Error()), nil
	}
	if item != "" && len(validation.IsDNS1123Label(item)) > 0 {
		return refused(judge.OtherWorkItem, fmt.Sprintf("_meta %q names no work item.", doors.MetaWorkItem)), nil
	}
	args, err := t.Arguments(p.Arguments)
	if errors.Is(err, tools.ErrArguments) {
		return refused(judge.BadArguments, "Nothing was run: "+err.Error()+"."), nil
	} else if err != nil {
		return doors.ToolResult{}, err
	}
	switch t.Name {
	case tools.SubmitPlan:
		sub := plan.Submission{}
		if err := json.Unmarshal(args, &sub); err != nil {
			return doors.ToolResult{}, fmt.Errorf("read plan: %w", err)
		}
		sub.ID, sub.Item = id, item
		return s.Plans.Submit(ctx, a.Name, sub)
	case tools.AskHuman:
		return s.ask(ctx, a.Name, item, id, args)
	case tools.Finish:
		return s.finish(ctx, a.Name, item, args)
	}
	device, rest, err := tools.SplitDevice(args)
	if err != nil {
		return doors.ToolResult{}, err
	}
	return s.Dispatcher.Do(ctx, a.Name, item, judge.Call{ID: id, Device: device, Capability: t.Capability, Args: rest})
}

// meta reads a string of the call's _meta; empty when it is absent.
func meta(m sdk.Meta, key string) (string, error) {
	v, ok := m[key]
	if !ok {
		return "", nil
	}
	s, ok := v.(string)
	if !ok || s == "" || len(s) > maxCallID {
		return "", fmt.Errorf("_meta %q must be a string of 1 to %d bytes", key, maxCallID)
	}
	for _, r := range s {
		if sanitize.Hidden(r) {
			return "", fmt.Errorf("_meta %q has characters that nobody sees", key)
		}
	}
	return s, nil
}

func refused(reason, message string) doors.ToolResult {
	return doors.ToolResult{Status: doors.Refused, Reason: reason, Message: message}
}
