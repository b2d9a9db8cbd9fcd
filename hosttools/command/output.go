package command

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Output of a program on one stream.
type Output struct {
	// Head and Tail are what was kept; when nothing was left out, Tail follows Head without a gap.
	Head, Tail []byte
	// Total bytes written.
	Total int64
}

// Missing bytes between Head and Tail.
func (o Output) Missing() int64 { return o.Total - int64(len(o.Head)+len(o.Tail)) }

// Bytes kept, without a mark for what is missing.
func (o Output) Bytes() []byte { return append(append([]byte{}, o.Head...), o.Tail...) }

// IsText tells whether it is better read as text: valid UTF-8 but for runes that were cut, and without NUL.
func (o Output) IsText() bool {
	head, tail := o.whole()
	return utf8.Valid(head) && utf8.Valid(tail) && !strings.ContainsRune(string(head)+string(tail), 0)
}

// Text with a mark in the middle that says how much is missing.
func (o Output) Text() string {
	head, tail := o.whole()
	if missing := o.Total - int64(len(head)+len(tail)); missing > 0 {
		return string(head) + fmt.Sprintf("\n[… %d bytes left out …]\n", missing) + string(tail)
	}
	return string(head) + string(tail)
}

// Base64 of what was kept.
func (o Output) Base64() string { return base64.StdEncoding.EncodeToString(o.Bytes()) }

// Shrink keeps at most n bytes.
func (o Output) Shrink(n int) Output {
	if len(o.Head)+len(o.Tail) <= n {
		return o
	}
	all := o.Bytes()
	head := n * 2 / 3
	// Never reach over the gap: what is head stays head.
	head, tail := min(head, len(o.Head)), min(n-head, len(o.Tail))
	if o.Missing() == 0 {
		tail = n - head
	}
	return Output{Head: all[:head], Tail: all[len(all)-tail:], Total: o.Total}
}

// whole runes only, on both sides of the gap.
func (o Output) whole() (head, tail []byte) {
	if o.Missing() == 0 {
		return o.Bytes(), nil
	}
	head, tail = o.Head, o.Tail
	for i := 1; i < utf8.UTFMax && i <= len(head); i++ {
		if last := head[len(head)-i]; utf8.RuneStart(last) {
			if !utf8.FullRune(head[len(head)-i:]) {
				head = head[:len(head)-i]
			}
			break
		}
	}
	for i := 0; i < utf8.UTFMax-1 && len(tail) > 0 && !utf8.RuneStart(tail[0]); i++ {
		tail = tail[1:]
	}
	return head, tail
}

// Keeper keeps head and tail of what is written to it, in bounded memory.
type Keeper struct {
	head    []byte
	ring    []byte
	headMax int
	tailMax int
	total   int64
}

// NewKeeper of so many bytes: the first two thirds and the last third.
func NewKeeper(keep int) *Keeper {
	head := keep * 2 / 3
	return &Keeper{headMax: head, tailMax: keep - head}
}

func (k *Keeper) Write(p []byte) (int, error) {
	n := len(p)
	k.total += int64(n)
	if room := k.headMax - len(k.head); room > 0 {
		take := min(room, len(p))
		k.head = append(k.head, p[:take]...)
		p = p[take:]
	}
	k.ring = append(k.ring, p...)
	// Twice the tail before it is moved, so that each byte is moved once on average.
	if len(k.ring) > 2*k.tailMax {
		k.ring = append(k.ring[:0], k.ring[len(k.ring)-k.tailMax:]...)
	}
	return n, nil
}

// Output kept so far.
func (k *Keeper) Output() Output {
	tail := k.ring[max(0, len(k.ring)-k.tailMax):]
	return Output{Head: k.head, Tail: tail, Total: k.total}
}

// stream reads one pipe of a program.
type stream struct {
	reader *os.File
	kept   *Keeper
	live   *Tail // is written to as well; may be nil
	done   chan struct{}
}

func pipe(keep int) (*stream, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &stream{reader: r, kept: NewKeeper(keep), done: make(chan struct{})}, w, nil
}

func (s *stream) abandon(writer *os.File) {
	s.reader.Close()
	writer.Close()
}

// collect in the background; writer is the program's now.
func (s *stream) collect(writer *os.File) {
	writer.Close()
	go func() {
		defer close(s.done)
		var to io.Writer = s.kept
		if s.live != nil {
			to = io.MultiWriter(s.kept, s.live)
		}
		_, _ = io.Copy(to, s.reader)
	}()
}

// end waits for the end of the pipe, no longer than grace: a program that left its group may hold it for ever.
func (s *stream) end(grace time.Duration) Output {
	_ = s.reader.SetReadDeadline(time.Now().Add(grace))
	<-s.done
	s.reader.Close()
	return s.kept.Output()
}
