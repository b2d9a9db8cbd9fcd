package doorclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"nisse.io/nisse/agentruntime/backoff"
	"nisse.io/nisse/internal/doors"
)

const (
	maxLine = 4 << 20
	// silence after which the stream counts as dead: the broker sends an empty line far more often.
	silence = 90 * time.Second
	// Between attempts, at the first and at most. Somebody may be waiting: nothing goes on before the stream is back.
	firstWait, longestWait = 250 * time.Millisecond, 5 * time.Second
)

// Work reads the broker's work stream.
type Work struct {
	door Door
	http *http.Client
	log  *slog.Logger
	wait *backoff.Backoff
}

// NewWork for the broker's door.
func NewWork(d Door, log *slog.Logger) *Work {
	return &Work{door: d, http: d.client(), log: log, wait: backoff.New(firstWait, longestWait)}
}

// Run hands every snapshot to got until ctx ends, connecting again whenever the stream breaks. A snapshot is the whole truth, so
// nothing is lost in between. lost is told of each break.
func (w *Work) Run(ctx context.Context, got func(doors.Snapshot), lost func(error)) {
	for ctx.Err() == nil {
		err := w.stream(ctx, got)
		if ctx.Err() != nil {
			return
		}
		w.log.WarnContext(ctx, "work.lost", "error", err.Error())
		lost(err)
		if w.wait.Wait(ctx, 0) != nil {
			return
		}
	}
}

var errSilent = errors.New("the work stream went silent")

func (w *Work) stream(ctx context.Context, got func(doors.Snapshot)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(w.door.URL, "/")+"/v1/work", nil)
	if err != nil {
		return fmt.Errorf("work stream: %w", err)
	}
	req.Header.Set("Accept", "application/x-ndjson")
	res, err := w.http.Do(req)
	if err != nil {
		return fmt.Errorf("work stream: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("work stream: %w", problem(res))
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(make([]byte, 0, 16<<10), maxLine)
	for lines.Scan() {
		watchdog.Reset(silence)
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var s doors.Snapshot
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("work stream: a line that is no snapshot: %w", err)
		}
		w.wait.Reset()
		got(s)
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("work stream: %w", cause)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("work stream: %w", err)
	}
	return errors.New("work stream: the broker closed it")
}
