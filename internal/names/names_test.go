package names

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNames(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	wi := WorkItem(at, "!a:x", "$e")
	for _, n := range []string{wi, Plan(wi, 3), HaltGate(wi, "s", ""), Approval("!a:x", "$e"), Job("0123456789012345678901234567890123456789abcdef"),
		WorkItem(time.Time{}, "", ""), WorkItem(time.Unix(1<<60, 0), "!a", "$b")} {
		if !label.MatchString(n) || len(n) > 63 {
			t.Errorf("%q is not a DNS label", n)
		}
	}
	if wi != WorkItem(at, "!a:x", "$e") {
		t.Error("one event gave two names")
	}
	if wi == WorkItem(at, "!a:x", "$f") || wi == WorkItem(at, "!b:x", "$e") || WorkItem(at, "a", "bc") == WorkItem(at, "ab", "c") {
		t.Error("two events gave one name")
	}
	if l := Lease(strings.Repeat("d", 63)); len(validation.IsDNS1123Subdomain(l)) > 0 {
		t.Errorf("%q names no Lease", l)
	}
	if HaltGate(wi, "a", "b") == HaltGate(wi, "ab", "") {
		t.Error("two halts gave one name")
	}
}
