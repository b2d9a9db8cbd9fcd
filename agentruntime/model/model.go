// Package model asks a language model. What it is asked is rendered from the canonical log at call time, and nothing of the vendor's
// wire shape is kept: an adapter turns Request into one HTTP call and the answer into Answer.
package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Role of a message.
type Role string

// Roles.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Message in a request.
type Message struct {
	Role Role
	Text string
	// Calls of an assistant's message.
	Calls []Call
	// CallID that a tool's message answers.
	CallID string
}

// Call of a tool. ID is ours when it is sent and the provider's when it is received.
type Call struct {
	ID   string
	Tool string
	Args string
}

// Tool on offer. Schema is JSON Schema of its arguments.
type Offer struct {
	Name        string
	Description string
	Schema      json.RawMessage
}

// Request for one answer.
type Request struct {
	Messages []Message
	Tools    []Offer
}

// Answer of a model, with its reasoning taken out of the text.
type Answer struct {
	Text      string
	Reasoning string
	// Model that the server says it was.
	Model string
	Calls []Call
	// Problem for which the answer cannot be used, in words for the model.
	Problem string
	// Garbled: the problem is with what came over the wire, and asking the same again may help.
	Garbled bool
}

// Model answers requests.
type Model interface {
	Ask(ctx context.Context, r Request) (Answer, error)
}

// Kind of an error tells what to do about it.
type Kind int

const (
	// Passing: ask again after a while.
	Passing Kind = iota
	// Misconfigured: a person has to mend the endpoint, the key or the model's name; asking again now and then finds out.
	Misconfigured
	// TooLong: the request does not fit into the model's context; a shorter one may.
	TooLong
	// Final: the same request will always fail.
	Final
)

// Error of a request.
type Error struct {
	Kind Kind
	// After how long the server wants to be asked again; 0 when it did not say.
	After time.Duration
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// AsError finds the Error in err; anything else counts as passing.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Kind: Passing, Err: fmt.Errorf("ask the model: %w", err)}
}
