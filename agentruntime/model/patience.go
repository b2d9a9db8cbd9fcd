package model

import (
	"context"
	"errors"
	"time"

	"nisse.io/nisse/agentruntime/backoff"
)

// Patience is how a request is asked again.
type Patience struct {
	// First and Limit of the waits between attempts, and Slow between those that need a person to mend something.
	First, Limit, Slow time.Duration
}

// maxGarbled answers of one request before the model is told of it.
const maxGarbled = 2

// Usual patience.
var Usual = Patience{First: time.Second, Limit: 20 * time.Second, Slow: time.Minute}

// Ask m until it answers, ctx ends, or asking the same again is pointless. waiting is told of every attempt that failed.
func (p Patience) Ask(ctx context.Context, m Model, r Request, waiting func(since time.Duration, e *Error)) (Answer, error) {
	begun := time.Now()
	b := backoff.New(p.First, p.Limit)
	for garbled := 0; ; {
		a, err := m.Ask(ctx, r)
		if err == nil && a.Garbled && garbled < maxGarbled {
			garbled++
			err = &Error{Kind: Passing, Err: errors.New("what the model's server sends cannot be read")}
		}
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return Answer{}, ctx.Err()
		}
		e := AsError(err)
		atLeast := e.After
		switch e.Kind {
		case TooLong, Final:
			return Answer{}, e
		case Misconfigured:
			atLeast = max(atLeast, p.Slow)
		case Passing:
		}
		waiting(time.Since(begun), e)
		if err := b.Wait(ctx, atLeast); err != nil {
			return Answer{}, err
		}
	}
}
