package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/meter"
	"nisse.io/nisse/internal/podauth"
	"nisse.io/nisse/internal/rates"
)

const (
	// keepalive between two lines, so that both sides notice a dead connection.
	keepalive = 15 * time.Second
	// coalesce collects changes that follow a line closely, such as the item's state that follows a gate's outcome.
	coalesce = 5 * time.Millisecond
	// writeTimeout of one line; a reader that takes longer is cut off and comes back.
	writeTimeout = 30 * time.Second
	// maxStreams of one agent: the old one of a restarted runtime may linger beside the new.
	maxStreams = 4
	// A stream costs a look at everything the agent has: it is opened seldom, even by a pod that does nothing else.
	opensPerSecond = 1
	opensAtOnce    = 30
)

// Watcher looks at a stream's token now and then: its context ends when the token is no longer good.
type Watcher interface {
	Watch(ctx context.Context) (context.Context, context.CancelFunc)
}

// Stream serves GET /v1/work to pods that podauth let through. All fields but Keepalive are required.
type Stream struct {
	// Objects are read from a cache: a stream is told what there is, and decides nothing.
	Objects   client.Reader
	Hub       *Hub
	Auth      Watcher
	Opens     *rates.Buckets
	Meter     *meter.Meter
	Log       *slog.Logger
	Namespace string
	// Keepalive between lines; 15 s when zero.
	Keepalive time.Duration

	mu   sync.Mutex
	open map[string]int
}

var errAgentGone = errors.New("the Agent is gone")

func (s *Stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ok := podauth.Rate{Buckets: s.Opens, PerSecond: opensPerSecond, AtOnce: opensAtOnce, Message: "the work stream is opened too often; slow down"}.Admit(w, r)
	if !ok {
		return
	}
	if !s.enter(id.Agent) {
		podauth.Problem(w, http.StatusTooManyRequests, "TooManyStreams", fmt.Sprintf("%d work streams are open already", maxStreams))
		return
	}
	defer s.leave(id.Agent)
	ctx, cancel := s.Auth.Watch(r.Context())
	defer cancel()
	changed, stop := s.Hub.Listen(id.Agent)
	defer stop()
	first, err := s.line(ctx, id.Agent)
	switch {
	case errors.Is(err, errAgentGone):
		podauth.Problem(w, http.StatusForbidden, "AgentNotFound", "there is no Agent "+id.Agent)
		return
	case err != nil:
		s.Log.Warn("work.read_failed", "agent", id.Agent, "err", err)
		podauth.Problem(w, http.StatusServiceUnavailable, "Unavailable", "the cluster cannot be read now; try again")
		return
	}
	defer s.Meter.Stream()()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if err := s.follow(ctx, http.NewResponseController(w), w, id.Agent, first, changed); err != nil {
		s.Log.Info("work.stream_ended", "agent", id.Agent, "reason", err.Error())
	}
}

// follow writes the first line, and another whenever it differs from the last, until the context ends or the reader does.
func (s *Stream) follow(ctx context.Context, c *http.ResponseController, w http.ResponseWriter, agent string, last []byte, changed <-chan struct{}) error {
	if err := write(c, w, last); err != nil {
		return err
	}
	every := s.Keepalive
	if every == 0 {
		every = keepalive
	}
	idle := time.NewTimer(every)
	defer idle.Stop()
	written := time.Now()
	for {
		line := []byte(nil)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-idle.C:
		case <-changed:
			if err := pause(ctx, coalesce-time.Since(written)); err != nil {
				return err
			}
			next, err := s.line(ctx, agent)
			if err != nil {
				return err
			}
			if bytes.Equal(next, last) {
				continue
			}
			line, last = next, next
		}
		if err := write(c, w, line); err != nil {
			return err
		}
		written = time.Now()
		idle.Reset(every)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func write(c *http.ResponseController, w http.ResponseWriter, line []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := w.Write(append(line[:len(line):len(line)], '\n')); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func (s *Stream) line(ctx context.Context, agent string) ([]byte, error) {
	o, err := s.read(ctx, agent)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Snapshot(o))
}

func (s *Stream) read(ctx context.Context, agent string) (Objects, error) {
	o := Objects{Agent: &v1alpha1.Agent{}}
	if err := s.Objects.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: agent}, o.Agent); err != nil {
		if apierrors.IsNotFound(err) {
			return o, errAgentGone
		}
		return o, fmt.Errorf("read agent %s: %w", agent, err)
	}
	ns := client.InNamespace(s.Namespace)
	var items v1alpha1.WorkItemList
	var devices v1alpha1.DeviceList
	for _, l := range []client.ObjectList{&items, &devices} {
		if err := s.Objects.List(ctx, l, ns); err != nil {
			return o, fmt.Errorf("list %T: %w", l, err)
		}
	}
	o.Items, o.Devices = items.Items, devices.Items
	if o.Agent.Status.ActiveWorkItem == "" {
		return o, nil
	}
	var plans v1alpha1.PlanList
	var gates v1alpha1.GateList
	var jobs v1alpha1.DeviceJobList
	of := client.MatchingFields{v1alpha1.FieldWorkItem: o.Agent.Status.ActiveWorkItem}
	for _, l := range []client.ObjectList{&plans, &gates, &jobs} {
		if err := s.Objects.List(ctx, l, ns, of); err != nil {
			return o, fmt.Errorf("list %T: %w", l, err)
		}
	}
	o.Plans, o.Gates, o.Jobs = plans.Items, gates.Items, jobs.Items
	return o, nil
}

func (s *Stream) enter(agent string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]int{}
	}
	if s.open[agent] >= maxStreams {
		return false
	}
	s.open[agent]++
	return true
}

func (s *Stream) leave(agent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[agent]--; s.open[agent] == 0 {
		delete(s.open, agent)
	}
}
