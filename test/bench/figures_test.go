package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[len(hundred)-1-i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		name string
		all  []time.Duration
		p    float64
		want time.Duration
	}{
		{"nothing", nil, 50, 0},
		{"one", []time.Duration{7}, 99, 7},
		{"the middle of three", []time.Duration{9, 1, 5}, 50, 5},
		{"the middle of a hundred", hundred, 50, 50},
		{"p99 of a hundred is not the worst", hundred, 99, 99},
		{"p99 of fifty is the worst", hundred[50:], 99, 50},
		{"the worst", hundred, 100, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Percentile(tt.all, tt.p); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}

func TestWays(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(0, 0).Add(time.Duration(n) * time.Millisecond) }
	var w Ways
	for _, walk := range [][2]int{{3, 10}, {5, 6}} {
		if err := w.Add(at(0), []Mark{{"first", at(walk[0])}, {"second", at(walk[1])}}); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := w.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := "| up to | p50 ms | p90 ms | p99 ms | worst ms |\n|---|---|---|---|---|\n| first | 3.0 | 5.0 | 5.0 | 5.0 |\n| second | 1.0 | 7.0 | 7.0 | 7.0 |\n| whole way | 6.0 | 10.0 | 10.0 | 10.0 |\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	if p50, p99 := w.Whole(50), w.Whole(99); p50 != 6*time.Millisecond || p99 != 10*time.Millisecond {
		t.Errorf("the whole way: %s, %s", p50, p99)
	}
	for name, marks := range map[string][]Mark{
		"a mark that is missing":      {{"first", at(1)}},
		"a mark that was not seen":    {{"first", at(1)}, {"second", time.Time{}}},
		"a mark with another meaning": {{"first", at(1)}, {"third", at(2)}},
	} {
		if w.Add(at(0), marks) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestAudit(t *testing.T) {
	const head = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete",`
	path := filepath.Join(t.TempDir(), "audit.log")
	text := head + `"requestURI":"/apis/nisse.io/v1alpha1/namespaces/n/gates/g/status","verb":"patch","user":{"username":"admin"},"impersonatedUser":{"username":"system:serviceaccount:s:nisse-manager"},"objectRef":{"resource":"gates","namespace":"n","name":"g","subresource":"status"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:00.000001Z","stageTimestamp":"2026-01-01T00:00:00.5Z"}
` + head + `"requestURI":"/x?dryRun=All","verb":"create","user":{"username":"a"},"objectRef":{"resource":"approvals"},"responseStatus":{"code":201}}
` + head + `"requestURI":"/x","verb":"create","user":{"username":"a"},"objectRef":{"resource":"tokenreviews"},"responseStatus":{"code":201}}
` + head + `"requestURI":"/x","verb":"create","user":{"username":"a"},"objectRef":{"resource":"plans"},"responseStatus":{"code":409}}
` + head + `"half a li`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, end, err := ReadAudit(path, 0)
	if err != nil || len(all) != 4 || end != int64(strings.LastIndexByte(text, '\n')+1) {
		t.Fatalf("%d requests up to %d, %v", len(all), end, err)
	}
	var kept []Request
	for _, r := range all {
		if r.Kept() {
			kept = append(kept, r)
		}
	}
	if diff := cmp.Diff([]Count{{Who: "nisse-manager", Verb: "patch", Kind: "gates/status", N: 1}}, Counts(kept)); diff != "" {
		t.Error(diff)
	}
	if took := kept[0].Answered.Sub(kept[0].Received); took != 499999*time.Microsecond {
		t.Errorf("took %s", took)
	}
	if more, _, err := ReadAudit(path, end); err != nil || len(more) != 0 {
		t.Errorf("beyond the end: %d, %v", len(more), err)
	}
}
