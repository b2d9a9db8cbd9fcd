package podauth

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// good is what the API server says of a token of pod agent-ops-0 for audience broker.
func good() authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     []string{"broker"},
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:nisse:agent-ops",
			Extra: map[string]authenticationv1.ExtraValue{
				extraPodName: {"agent-ops-0"},
				extraPodUID:  {"u1"},
			},
		},
	}
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		change  func(*authenticationv1.TokenReviewStatus)
		refused bool
	}{
		"good":                      {change: func(*authenticationv1.TokenReviewStatus) {}},
		"not authenticated":         {change: func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false }, refused: true},
		"authenticated with error":  {change: func(s *authenticationv1.TokenReviewStatus) { s.Error = "odd" }, refused: true},
		"no audience in the answer": {change: func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil }, refused: true},
		"other audience":            {change: func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"gateway"} }, refused: true},
		"several audiences":         {change: func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"x", "broker"} }},
		"a person":                  {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "lucas" }, refused: true},
		"other namespace": {change: func(s *authenticationv1.TokenReviewStatus) {
			s.User.Username = "system:serviceaccount:default:agent-ops"
		}, refused: true},
		"namespace with same prefix": {change: func(s *authenticationv1.TokenReviewStatus) {
			s.User.Username = "system:serviceaccount:nisse-system:agent-ops"
		}, refused: true},
		"account that is no agent's": {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:nisse:default" }, refused: true},
		"agent without a name":       {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:nisse:agent-" }, refused: true},
		"not bound to a pod":         {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = nil }, refused: true},
		"two pod UIDs":               {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodUID] = []string{"u1", "u2"} }, refused: true},
		"empty pod UID":              {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodUID] = []string{""} }, refused: true},
		"another pod of the account": {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[extraPodName] = []string{"debug"} }, refused: true},
		"another agent's pod":        {change: func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:nisse:agent-dev" }, refused: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := good()
			tt.change(&s)
			agent, uid, err := judge(s, "nisse", "broker")
			if refused := errors.Is(err, ErrRefused); refused != tt.refused {
				t.Fatalf("err = %v, want refused %v", err, tt.refused)
			}
			if !tt.refused && (agent != "ops" || uid != "u1") {
				t.Errorf("got %q %q", agent, uid)
			}
		})
	}
}

// api is an API server with faults; the real one is in the envtest of this package.
type api struct {
	status  authenticationv1.TokenReviewStatus
	pod     *corev1.Pod
	err     error
	reviews int
}

func (a *api) Create(_ context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	a.reviews++
	if a.err != nil {
		return nil, a.err
	}
	r = r.DeepCopy()
	r.Status = a.status
	return r, nil
}

func (a *api) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	if a.pod == nil || a.pod.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	return a.pod, nil
}

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-ops-0", UID: types.UID("u1")}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func TestAuthenticatePod(t *testing.T) {
	tests := map[string]struct {
		change  func(*api)
		refused bool
		failed  bool
	}{
		"current pod":    {change: func(*api) {}},
		"pending pod":    {change: func(a *api) { a.pod.Status.Phase = corev1.PodPending }},
		"pod is gone":    {change: func(a *api) { a.pod = nil }, refused: true},
		"pod was remade": {change: func(a *api) { a.pod.UID = "u2" }, refused: true},
		"pod is going":   {change: func(a *api) { now := metav1.Now(); a.pod.DeletionTimestamp = &now }, refused: true},
		"pod has ended":  {change: func(a *api) { a.pod.Status.Phase = corev1.PodFailed }, refused: true},
		"API server out": {change: func(a *api) { a.err = errors.New("connection refused") }, failed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			world := &api{status: good(), pod: pod()}
			tt.change(world)
			id, err := newAuthenticator(world, world, "nisse", "broker", time.Now).Authenticate(t.Context(), "t")
			if errors.Is(err, ErrRefused) != tt.refused || (err != nil) != (tt.refused || tt.failed) {
				t.Fatalf("err = %v", err)
			}
			if err == nil {
				if diff := cmp.Diff(Identity{Agent: "ops", PodUID: "u1"}, id); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestAnswersAreRememberedForTenSecondsAtMost(t *testing.T) {
	now := time.Unix(1000, 0)
	world := &api{status: good(), pod: pod()}
	a := newAuthenticator(world, world, "nisse", "broker", func() time.Time { return now })
	for _, after := range []time.Duration{0, 0, 9 * time.Second} {
		now = now.Add(after)
		if _, err := a.Authenticate(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
	}
	if world.reviews != 1 {
		t.Fatalf("%d reviews within 10 s, want 1", world.reviews)
	}
	world.pod.UID = "u2" // the pod was remade
	now = now.Add(time.Second)
	if _, err := a.Authenticate(t.Context(), "t"); !errors.Is(err, ErrRefused) {
		t.Fatalf("after 10 s: %v, want refused", err)
	}
	if _, err := a.Authenticate(t.Context(), "other"); !errors.Is(err, ErrRefused) {
		t.Fatalf("another token: %v, want refused", err)
	}
}

func TestRefusalsAreNotRemembered(t *testing.T) {
	world := &api{status: good()}
	a := newAuthenticator(world, world, "nisse", "broker", time.Now)
	if _, err := a.Authenticate(t.Context(), "t"); !errors.Is(err, ErrRefused) {
		t.Fatalf("%v, want refused", err)
	}
	world.pod = pod()
	if _, err := a.Authenticate(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
}

func TestRequire(t *testing.T) {
	tests := map[string]struct {
		header string
		err    error
		want   int
	}{
		"no header":      {want: http.StatusUnauthorized},
		"basic":          {header: "Basic eDp5", want: http.StatusUnauthorized},
		"empty bearer":   {header: "Bearer ", want: http.StatusUnauthorized},
		"good":           {header: "Bearer t", want: http.StatusNoContent},
		"lower case":     {header: "bearer t", want: http.StatusNoContent},
		"API server out": {header: "Bearer t", err: errors.New("timeout"), want: http.StatusServiceUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			world := &api{status: good(), pod: pod(), err: tt.err}
			h := newAuthenticator(world, world, "nisse", "broker", time.Now).Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if id, ok := From(r.Context()); !ok || id.Agent != "ops" {
					t.Errorf("handler got %v %v", id, ok)
				}
				w.WriteHeader(http.StatusNoContent)
			}))
			r := httptest.NewRequest(http.MethodGet, "/v1/work", nil)
			if tt.header != "" {
				r.Header.Set("Authorization", tt.header)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d: %s", w.Code, tt.want, w.Body)
			}
		})
	}
}

func TestGuessersAreSlowedDown(t *testing.T) {
	world := &api{status: good(), pod: pod()}
	a := newAuthenticator(world, world, "nisse", "broker", time.Now)
	h := a.Require(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(address, token string) int {
		r := httptest.NewRequest(http.MethodGet, "/v1/work", nil)
		r.RemoteAddr = address
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	if code := ask("192.0.2.1:1", "good"); code != http.StatusOK {
		t.Fatalf("good token: %d", code)
	}
	world.status.Authenticated = false
	for range 2 * reviewsAtOnce {
		ask("192.0.2.1:2", rand.Text())
	}
	if world.reviews > reviewsAtOnce+10 {
		t.Errorf("%d reviews for %d guesses", world.reviews, 2*reviewsAtOnce)
	}
	if code := ask("192.0.2.1:3", "x"); code != http.StatusTooManyRequests {
		t.Errorf("one more guess: %d", code)
	}
	if code := ask("192.0.2.1:1", "good"); code != http.StatusOK {
		t.Errorf("the remembered token beside the guesses: %d", code)
	}
	if code := ask("192.0.2.2:1", "x"); code != http.StatusUnauthorized {
		t.Errorf("another address: %d", code)
	}
}

// One agent's requests that do not end take no room from another's, and one that ends makes room.
func TestRequestsUnderWay(t *testing.T) {
	ops, dev := &api{status: good(), pod: pod()}, &api{status: good(), pod: pod()}
	dev.status.User.Username, dev.status.User.Extra[extraPodName], dev.pod.Name = "system:serviceaccount:nisse:agent-dev", []string{"agent-dev-0"}, "agent-dev-0"
	a := newAuthenticator(ops, ops, "nisse", "broker", time.Now)
	begun, end := make(chan struct{}), make(chan struct{})
	h := a.Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			begun <- struct{}{}
			<-end
		}
	}))
	ask := func(method, token string) int {
		r := httptest.NewRequest(method, "/mcp", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	ended := make(chan int)
	for range maxUnderWay {
		go func() { ended <- ask(http.MethodPost, "ops") }()
		<-begun
	}
	if code := ask(http.MethodGet, "ops"); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	a.reviewer, a.pods = dev, dev // the other's token is asked about there
	if code := ask(http.MethodGet, "dev"); code != http.StatusOK {
		t.Errorf("another agent's: %d", code)
	}
	end <- struct{}{}
	if code := <-ended; code != http.StatusOK {
		t.Errorf("one that waited: %d", code)
	}
	if code := ask(http.MethodGet, "ops"); code != http.StatusOK {
		t.Errorf("one more, when one has ended: %d", code)
	}
	close(end)
	for range maxUnderWay - 1 {
		<-ended
	}
	if left := len(a.underWay.by); left != 0 {
		t.Errorf("%d agents have requests under way when all have ended", left)
	}
}
