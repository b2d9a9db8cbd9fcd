package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usualIdle is longer than the longest of the product's periods, a minute; see make bench for ten of them.
const usualIdle = 65 * time.Second

// IdleTime for which nothing may be written: NISSE_E2E_IDLE, else usualIdle.
func IdleTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("NISSE_E2E_IDLE")
	if text == "" {
		return usualIdle
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("NISSE_E2E_IDLE: %v", err)
	}
	return d
}

// Quiet waits until nothing has been written for some seconds, and nothing that was done is still to be told.
func (r *Rig) Quiet(t testing.TB) {
	t.Helper()
	r.AuditIsKept(t)
	var last []string
	for range 36 {
		if last = r.WritesDuring(t, 5*time.Second); len(last) == 0 {
			return
		}
	}
	t.Fatalf("it never becomes quiet; the last writes are %v", last)
}

// WritesDuring returns the key of every write to etcd below Nisse's namespaces and kinds within a time, but for leases, which exist
// to be renewed.
func (r *Rig) WritesDuring(t testing.TB, d time.Duration) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, "etcdctl", "--endpoints", os.Getenv("NISSE_E2E_ETCD"), "watch", "--prefix", "/registry/", "--write-out", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	keys := make(chan string)
	go func() {
		defer close(keys)
		readKeys(ctx, out, keys)
	}()

	// A write of our own shows that the watch has begun; another, at the end, that it still sees.
	begun, ended := "e2e-writes-begin-"+fmt.Sprint(time.Now().UnixNano()), "e2e-writes-end-"+fmt.Sprint(time.Now().UnixNano())
	var seen []string
	r.mark(t, keys, begun)
	timer := time.After(d)
	for waiting := true; waiting; {
		select {
		case key, open := <-keys:
			if !open {
				t.Fatal("etcdctl ended")
			}
			seen = append(seen, key)
		case <-timer:
			waiting = false
		}
	}
	seen = append(seen, r.mark(t, keys, ended)...)
	cancel()
	for range keys { // until the reader has gone
	}
	_ = cmd.Wait() // it was killed
	var writes []string
	for _, key := range seen {
		if ours(key) && !strings.Contains(key, "/e2e-writes-") {
			writes = append(writes, key)
		}
	}
	return writes
}

// mark writes until the write is seen, and returns what was seen before it.
func (r *Rig) mark(t testing.TB, keys <-chan string, name string) []string {
	t.Helper()
	var before []string
	deadline := time.After(Patience)
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for n := 0; ; n++ {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", name, n)}}
		if err := r.Admin.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Admin.Delete(context.WithoutCancel(t.Context()), m); err != nil {
				t.Error(err)
			}
		})
		for waiting := true; waiting; {
			select {
			case key, open := <-keys:
				if !open {
					t.Fatal("etcdctl ended; is NISSE_E2E_ETCD right?")
				}
				if strings.Contains(key, "/"+name) {
					return before
				}
				before = append(before, key)
			case <-again.C:
				waiting = false
			case <-deadline:
				t.Fatal("etcdctl does not see a write")
			}
		}
	}
}

// ours tells whether a key is Nisse's: of its kinds, or in its namespaces.
func ours(key string) bool {
	if strings.HasPrefix(key, "/registry/leases/") {
		return false
	}
	return strings.HasPrefix(key, "/registry/nisse.io/") || strings.Contains(key, "/"+Namespace+"/") || strings.Contains(key, "/"+System+"/")
}

// readKeys of etcdctl's answers until they end.
func readKeys(ctx context.Context, from io.Reader, to chan<- string) {
	answers := json.NewDecoder(from)
	for {
		var answer struct {
			Events []struct {
				Kv struct {
					Key []byte `json:"key"`
				} `json:"kv"`
			}
		}
		if err := answers.Decode(&answer); err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "read etcdctl's answer:", err)
			}
			return
		}
		for _, e := range answer.Events {
			select {
			case to <- string(e.Kv.Key):
			case <-ctx.Done():
				return
			}
		}
	}
}
