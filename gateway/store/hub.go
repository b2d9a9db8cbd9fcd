package store

import "sync"

// Topics on which waiters hear of changes.
const (
	// TopicInbox: rows to process.
	TopicInbox = "inbox"
	// TopicProgress: progress to show.
	TopicProgress = "progress"
)

// TopicMailbox of an agent: something to read.
func TopicMailbox(agent string) string { return "mailbox/" + agent }

// TopicOutbox of a sender: something to say.
func TopicOutbox(sender string) string { return "outbox/" + sender }

// hub wakes those who wait for a topic. It carries no content: whoever wakes looks into the store.
type hub struct {
	mu     sync.Mutex
	topics map[string]chan struct{}
}

// Changed returns a channel that is closed at the next change of the topic. Ask for it before looking, else a change between the
// two is missed.
func (s *Store) Changed(topic string) <-chan struct{} {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.hub.topics == nil {
		s.hub.topics = map[string]chan struct{}{}
	}
	ch, ok := s.hub.topics[topic]
	if !ok {
		ch = make(chan struct{})
		s.hub.topics[topic] = ch
	}
	return ch
}

func (h *hub) tell(topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range topics {
		if ch, ok := h.topics[t]; ok {
			close(ch)
			delete(h.topics, t)
		}
	}
}
