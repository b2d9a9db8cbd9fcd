package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/admission"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// On one server: first without the policies, then without the right, then as installed.
func TestEnforced(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	manager := apitest.ServiceAccount("nisse-system", "nisse-manager")

	probe := func(c client.Client) error {
		return (&admission.Probe{Client: c, Now: time.Now}).Enforced(t.Context(), ns)
	}
	if err := probe(apitest.As(t, cfg, manager)); !errors.Is(err, admission.ErrMissing) || !strings.Contains(err.Error(), "cannot be told") {
		t.Errorf("a refusal by RBAC is taken for the policy's: %v", err)
	}
	apitest.Grant(t, admin, ns, manager, apitest.Rule("approvals", "create"))
	apitest.Wait(t, time.Minute, func(context.Context) error {
		if err := probe(apitest.As(t, cfg, manager)); err == nil || !strings.Contains(err.Error(), "was let through") {
			return errors.Join(errors.New("without policies a forged approval must be let through"), err)
		}
		return nil
	})
	apitest.Install(t, admin, apitest.Path("config", "admission"))
	apitest.Wait(t, time.Minute, func(context.Context) error { return probe(apitest.As(t, cfg, manager)) })

	var left v1alpha1.ApprovalList
	if err := admin.List(t.Context(), &left, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != 0 {
		t.Errorf("the probe left %d approvals behind", len(left.Items))
	}
}

// scripted answers every attempt with err, and counts them.
type scripted struct {
	err   error
	asked int
}

func (s *scripted) Create(_ context.Context, _ client.Object, opts ...client.CreateOption) error {
	o := (&client.CreateOptions{}).ApplyOptions(opts)
	if diff := cmp.Diff([]string{"All"}, o.DryRun); diff != "" {
		return errors.New("not a dry run: " + diff)
	}
	s.asked++
	return s.err
}

func TestAnswersAreKept(t *testing.T) {
	refused := errors.New("denied by ValidatingAdmissionPolicy 'nisse-approver-is-requester'")
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := &scripted{err: refused}
	p := &admission.Probe{Client: s, Now: func() time.Time { return now }}
	ask := func(ns string, wantErr error, wantAsked int) {
		t.Helper()
		if err := p.Enforced(t.Context(), ns); !errors.Is(err, wantErr) {
			t.Errorf("%s at %s: %v, want %v", ns, now, err, wantErr)
		}
		if s.asked != wantAsked {
			t.Errorf("%s at %s: asked %d times, want %d", ns, now, s.asked, wantAsked)
		}
	}
	ask("a", nil, 2)
	ask("a", nil, 2)
	ask("b", nil, 4) // each namespace by itself
	now = now.Add(25 * time.Hour)
	s.err = nil // somebody removed the policies
	ask("a", admission.ErrMissing, 5)
	now = now.Add(30 * time.Second)
	ask("a", admission.ErrMissing, 5)
	s.err = refused
	now = now.Add(time.Minute)
	ask("a", nil, 7)
	away := errors.New("connection refused")
	s.err = away
	now = now.Add(25 * time.Hour)
	ask("a", away, 8)
	s.err = refused
	ask("a", nil, 10) // an API server that was away is asked again at once
}

// A good answer counts for a day to the moment, a bad one for a minute, and neither for longer because a clock was put back.
func TestHowLongAnAnswerCounts(t *testing.T) {
	refused := errors.New("denied by ValidatingAdmissionPolicy 'nisse-approver-is-requester'")
	for _, tc := range []struct {
		name  string
		first error
		after time.Duration
		again bool
	}{
		{"a good one, within the day", refused, 24*time.Hour - time.Nanosecond, false},
		{"a good one, after the day", refused, 24 * time.Hour, true},
		{"a bad one, within the minute", nil, time.Minute - time.Nanosecond, false},
		{"a bad one, after the minute", nil, time.Minute, true},
		{"a good one from a clock that was ahead", refused, -time.Second, true},
		{"a bad one from a clock that was ahead", nil, -time.Hour, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			s := &scripted{err: tc.first}
			p := &admission.Probe{Client: s, Now: func() time.Time { return now }}
			first := p.Enforced(t.Context(), "a")
			if errors.Is(first, admission.ErrMissing) != (tc.first == nil) {
				t.Fatalf("got %v", first)
			}
			asked := s.asked
			now = now.Add(tc.after)
			if second := p.Enforced(t.Context(), "a"); !errors.Is(second, first) && !errors.Is(second, admission.ErrMissing) {
				t.Errorf("first %v, then %v", first, second)
			}
			if again := s.asked > asked; again != tc.again {
				t.Errorf("asked again: %t, want %t", again, tc.again)
			}
		})
	}
}

// Only the policy's own refusal is a good answer. A refusal for another cause tells nothing of those who would not be refused so, and an
// API server that is away tells nothing at all.
func TestWhatARefusalTells(t *testing.T) {
	resource, broken := schema.GroupResource{Group: "nisse.io", Resource: "approvals"}, errors.New("broken")
	for _, tc := range []struct {
		name    string
		err     error
		missing bool
		ok      bool
	}{
		{"the policy", apierrors.NewForbidden(resource, "x", errors.New("ValidatingAdmissionPolicy 'nisse-approver-is-requester' denied request")), false, true},
		{"let through", nil, true, false},
		{"by RBAC", apierrors.NewForbidden(resource, "x", errors.New("cannot create resource")), true, false},
		{"by the schema", apierrors.NewInvalid(schema.GroupKind{Kind: "Approval"}, "x", nil), true, false},
		{"as a bad request", apierrors.NewBadRequest("no such field"), true, false},
		{"without CRDs", apierrors.NewNotFound(resource, "x"), true, false},
		{"a timeout", apierrors.NewTimeoutError("slow", 1), false, false},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), false, false},
		{"an internal error", apierrors.NewInternalError(broken), false, false},
		{"nobody there", broken, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &scripted{err: tc.err}
			p := &admission.Probe{Client: s, Now: time.Now}
			err := p.Enforced(t.Context(), "a")
			if (err == nil) != tc.ok || errors.Is(err, admission.ErrMissing) != tc.missing {
				t.Errorf("got %v", err)
			}
			asked := s.asked
			if again := p.Enforced(t.Context(), "a"); (again == nil) != tc.ok {
				t.Errorf("got %v at once after", again)
			}
			if kept := s.asked == asked; kept != (tc.ok || tc.missing) {
				t.Errorf("kept: %t", kept)
			}
		})
	}
}
