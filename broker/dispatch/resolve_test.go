package dispatch

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	p, now := backoff{}, time.Unix(0, 0)
	var looks []int
	for s := range 200 {
		if p.due("a", now.Add(time.Duration(s)*time.Second)) {
			looks = append(looks, s)
		}
	}
	want := []int{0, 5, 15, 35, 75, 135, 195}
	if len(looks) != len(want) {
		t.Fatalf("looked at %v s, want %v", looks, want)
	}
	for i := range want {
		if looks[i] != want[i] {
			t.Fatalf("looked at %v s, want %v", looks, want)
		}
	}
	if !p.due("b", now.Add(time.Hour)) || len(p) != 1 {
		t.Errorf("%d jobs remembered, want the new one alone", len(p))
	}
}
