// Package conversation keeps one Matrix client running for each Agent and one for the approvals account, follows changes of the
// Agents, and reports in each Agent's status how its conversation stands. It writes only when something changed.
package conversation

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"maunium.net/go/mautrix/id"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/intake"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/store"
)

// Keeper of the conversations. It is a reconciler of Agents.
type Keeper struct {
	// Objects reads from the cache and writes to the API server.
	Objects     client.Client
	Store       *store.Store
	Namespace   string
	Homeserver  string
	Approvals   string
	Credentials matrix.Credentials
	Log         *slog.Logger
	Timing      matrix.Timing
	// Changed is where Agents are named whose conversation changed, for the reconciler to look at.
	Changed chan event.TypedGenericEvent[*v1alpha1.Agent]

	mu      sync.Mutex
	ctx     context.Context // of Run; sessions live in it
	running map[string]*running
	// approvals is the state of the account that shows gates.
	approvals matrix.State
	seen      map[string]string // what each Agent claims: account, room and where that leads
	wg        sync.WaitGroup
}

// running is the session of one Agent.
type running struct {
	key    key
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	state matrix.State
}

// key is what a session depends on; another key means another session.
type key struct {
	uid, user, room string
}

// Run the approvals account, and the sessions that Reconcile asks for, until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	account, err := matrix.New(matrix.Options{
		Homeserver: k.Homeserver, UserID: id.UserID(k.Approvals), Sender: store.ByApprovals, Approvals: id.UserID(k.Approvals),
		Store: k.Store, Credentials: k.Credentials, Log: k.Log, Timing: k.Timing, Task: k.task, Hidden: func(agent string) { k.changed(ctx, agent) },
		Report: func(s matrix.State) {
			k.Log.InfoContext(ctx, "approvals.conversation", "connected", s.Connected, "reason", s.Reason, "message", s.Message)
			k.mu.Lock()
			k.approvals = s
			k.mu.Unlock()
			k.all(ctx) // each Agent's status tells whether its gates can be shown
		},
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.ctx, k.running = ctx, map[string]*running{}
	k.mu.Unlock()
	k.all(ctx) // those that were reconciled before there was a context to run in
	account.Run(ctx)
	k.wg.Wait()
	return nil
}

// Reconcile one Agent.
func (k *Keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var agents v1alpha1.AgentList
	if err := k.Objects.List(ctx, &agents, client.InNamespace(k.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("list agents: %w", err)
	}
	var agent *v1alpha1.Agent
	for i := range agents.Items {
		if agents.Items[i].Name == req.Name && agents.Items[i].DeletionTimestamp.IsZero() {
			agent = &agents.Items[i]
		}
	}
	if k.claims(req.Name, agent) {
		k.recheck(ctx, agents.Items, req.Name)
	}
	if agent == nil {
		k.end(req.Name)
		return ctrl.Result{}, nil
	}
	if shared := k.shared(agent, agents.Items); shared != "" {
		k.end(agent.Name)
		return k.report(ctx, agent, matrix.State{Reason: v1alpha1.ReasonRoomShared, Message: shared})
	}
	if state, ok := k.begin(ctx, agent); ok {
		state, err := k.withHidden(ctx, agent.Name, k.withApprovals(state))
		if err != nil {
			return ctrl.Result{}, err
		}
		return k.report(ctx, agent, state)
	}
	return ctrl.Result{}, nil
}

// claims notes what an Agent claims, and tells whether that is news to the others. A nil Agent claims nothing.
func (k *Keeper) claims(name string, agent *v1alpha1.Agent) bool {
	claim := ""
	if agent != nil {
		m := agent.Spec.Conversation.Matrix
		claim = m.UserID + "\n" + m.Room + "\n" + k.roomOf(agent)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil {
		k.seen = map[string]string{}
	}
	had := k.seen[name]
	if agent == nil {
		delete(k.seen, name)
	} else {
		k.seen[name] = claim
	}
	return had != claim
}

// shared says with whom an Agent shares its account or room; empty when with nobody.
func (k *Keeper) shared(agent *v1alpha1.Agent, all []v1alpha1.Agent) string {
	mine := agent.Spec.Conversation.Matrix
	if mine.UserID == k.Approvals {
		return "The account " + mine.UserID + " shows the gates; give the agent an account of its own."
	}
	for i := range all {
		other := &all[i]
		if other.Name == agent.Name || !other.DeletionTimestamp.IsZero() {
			continue
		}
		theirs := other.Spec.Conversation.Matrix
		switch {
		case theirs.UserID == mine.UserID:
			return fmt.Sprintf("Agent %s has the same account %s; each agent needs its own.", other.Name, mine.UserID)
		case theirs.Room == mine.Room, k.roomOf(agent) != "" && k.roomOf(agent) == k.roomOf(other):
			return fmt.Sprintf("Agent %s has the same room %s; each agent needs its own.", other.Name, mine.Room)
		}
	}
	return ""
}

// roomOf is the room that an Agent's address led to last, as its own session or an earlier one reported it.
func (k *Keeper) roomOf(a *v1alpha1.Agent) string {
	room, err := k.Store.Room(k.context(), a.Name, a.Spec.Conversation.Matrix.Room)
	if err != nil {
		return ""
	}
	return room
}

func (k *Keeper) context() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx == nil {
		return context.Background()
	}
	return k.ctx
}

// begin the session of an Agent, or another one if it depends on other things now. ok is false before Run.
func (k *Keeper) begin(ctx context.Context, agent *v1alpha1.Agent) (state matrix.State, ok bool) {
	want := key{string(agent.UID), agent.Spec.Conversation.Matrix.UserID, agent.Spec.Conversation.Matrix.Room}
	k.mu.Lock()
	if k.ctx == nil || k.ctx.Err() != nil {
		k.mu.Unlock()
		return matrix.State{}, false
	}
	have := k.running[agent.Name]
	k.mu.Unlock()
	if have != nil && have.key == want {
		return have.get(), true
	}
	k.end(agent.Name)
	r := &running{key: want, done: make(chan struct{})}
	account, err := matrix.New(matrix.Options{
		Homeserver: k.Homeserver, UserID: id.UserID(want.user), Sender: store.ByAgent(agent.Name), Agent: agent.Name, Wanted: want.room,
		Approvals: id.UserID(k.Approvals), Store: k.Store, Credentials: k.Credentials, Log: k.Log.With("agent", agent.Name), Timing: k.Timing, Task: k.task,
		Desk: intake.Desk{Objects: k.Objects, Namespace: k.Namespace, Agent: agent.Name, Account: want.user, Approvals: k.Approvals, Log: k.Log},
		Report: func(s matrix.State) {
			r.set(s)
			k.changed(k.context(), agent.Name)
		},
	})
	if err != nil {
		return matrix.State{Reason: matrix.HomeserverUnreachable, Message: err.Error()}, true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var runCtx context.Context
	runCtx, r.cancel = context.WithCancel(k.ctx)
	k.running[agent.Name] = r
	k.wg.Go(func() {
		defer close(r.done)
		account.Run(runCtx)
	})
	k.Log.InfoContext(ctx, "conversation.begun", "agent", agent.Name, "account", want.user, "room", want.room)
	return r.get(), true
}

// task is the ID by which logs tell an item's story.
func (k *Keeper) task(ctx context.Context, workItem string) string {
	return items.Task(ctx, k.Objects, k.Namespace, workItem)
}

// end the session of an Agent, if there is one, and wait for it.
func (k *Keeper) end(agent string) {
	k.mu.Lock()
	r := k.running[agent]
	delete(k.running, agent)
	k.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
}

// withApprovals adds to a good state why gates cannot be shown all the same.
func (k *Keeper) withApprovals(s matrix.State) matrix.State {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.Connected && s.Message == "" && k.approvals.Reason != "" && !k.approvals.Connected {
		s.Message = fmt.Sprintf("Plans cannot be shown: %s is not connected (%s: %s).", k.Approvals, k.approvals.Reason, k.approvals.Message)
	}
	return s
}

// withHidden adds to a good state that the homeserver refuses to show a gate.
func (k *Keeper) withHidden(ctx context.Context, agent string, s matrix.State) (matrix.State, error) {
	if !s.Connected || s.Message != "" {
		return s, nil
	}
	n, reason, err := k.Store.Hidden(ctx, agent)
	if err != nil {
		return s, fmt.Errorf("look for what is hidden from people: %w", err)
	}
	if n > 0 {
		s.Message = fmt.Sprintf("The homeserver refuses %d of the messages that ask for a decision (%s). They are tried again; until then decide with kubectl.", n, reason)
	}
	return s, nil
}

// all Agents are to be looked at.
func (k *Keeper) all(ctx context.Context) {
	var agents v1alpha1.AgentList
	if err := k.Objects.List(ctx, &agents, client.InNamespace(k.Namespace)); err != nil {
		k.Log.ErrorContext(ctx, "agents.unreadable", "error", err.Error()) // a cache that is full does not fail
		return
	}
	k.recheck(ctx, agents.Items, "")
}

// recheck the others: whom they share something with may have changed.
func (k *Keeper) recheck(ctx context.Context, all []v1alpha1.Agent, but string) {
	for i := range all {
		if all[i].Name != but {
			k.changed(ctx, all[i].Name)
		}
	}
}

// Look again at an agent's conversation: what is hidden from people may have changed.
func (k *Keeper) Look(ctx context.Context, agent string) { k.changed(ctx, agent) }

func (k *Keeper) changed(ctx context.Context, agent string) {
	go func() { // never hold up a session for a reconciler that is busy
		select {
		case k.Changed <- event.TypedGenericEvent[*v1alpha1.Agent]{Object: &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: agent}}}:
		case <-ctx.Done():
		}
	}()
}

func (r *running) get() matrix.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *running) set(s matrix.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
}
