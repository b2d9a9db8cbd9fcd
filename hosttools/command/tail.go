package command

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

// MostTail is how many bytes a Tail keeps.
const MostTail = 1 << 10

// Tail is the newest of what a program has written so far, on both its streams as it came. It may be read while the program runs.
type Tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	newest := p[max(0, len(p)-MostTail):]
	t.kept = append(t.kept[max(0, min(len(t.kept), len(t.kept)+len(newest)-MostTail)):], newest...)
	return len(p), nil
}

// Text of the tail: from a whole rune on, and with a mark for what is no text.
func (t *Tail) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept
	for i := 0; i < utf8.UTFMax-1 && len(kept) > 0 && len(t.kept) == MostTail && !utf8.RuneStart(kept[0]); i++ {
		kept = kept[1:]
	}
	return string(bytes.ToValidUTF8(kept, []byte(string(utf8.RuneError))))
}
