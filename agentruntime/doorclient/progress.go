package doorclient

import (
	"context"
	"crypto/rand"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// watchers of calls that are under way, by the token that their calls were given.
type watchers struct {
	mu   sync.Mutex
	tell map[string]func(line string)
}

// add a watcher under a new token. After remove it is not called any more.
func (w *watchers) add(tell func(line string)) (token string, remove func()) {
	token = rand.Text()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tell == nil {
		w.tell = map[string]func(string){}
	}
	w.tell[token] = tell
	return token, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.tell, token)
	}
}

// hear a notification. The lock is held while it is told, so that nothing is told of a call that has been answered.
func (w *watchers) hear(_ context.Context, n *mcp.ProgressNotificationClientRequest) {
	token, _ := n.Params.ProgressToken.(string) // nobody's when it is another kind
	w.mu.Lock()
	defer w.mu.Unlock()
	if tell := w.tell[token]; tell != nil && n.Params.Message != "" {
		tell(n.Params.Message)
	}
}
