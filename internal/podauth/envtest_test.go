package podauth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"nisse.io/nisse/internal/testrig"
)

// TestRealTokens asks a real API server for real tokens and reviews them there.
func TestRealTokens(t *testing.T) {
	env := &envtest.Environment{ControlPlaneStartTimeout: 3 * time.Minute}
	cfg, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server (is KUBEBUILDER_ASSETS set?): %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	var reviews atomic.Int64
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &reviews} })
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const ns = "nisse"
	w := world{t, c, ns}
	w.namespace()
	w.account("agent-ops")
	w.account("agent-dev")
	ops := w.pod("agent-ops-0", "agent-ops")
	stray := w.pod("stray", "agent-ops")
	w.pod("agent-dev-0", "agent-dev")

	tests := map[string]struct {
		token   string
		agent   string
		refused bool
	}{
		"the agent's pod":              {token: w.token("agent-ops", ops, "broker"), agent: "ops"},
		"two audiences":                {token: w.token("agent-ops", ops, "gateway", "broker"), agent: "ops"},
		"for the other door":           {token: w.token("agent-ops", ops, "gateway"), refused: true},
		"for the API server":           {token: w.token("agent-ops", ops), refused: true},
		"bound to no pod":              {token: w.token("agent-ops", nil, "broker"), refused: true},
		"bound to another pod":         {token: w.token("agent-ops", stray, "broker"), refused: true},
		"nonsense":                     {token: "eyJhbGciOiJub25lIn0.e30.", refused: true},
		"a good one with its end bent": {token: w.token("agent-ops", ops, "broker")[1:], refused: true},
		"another agent's own":          {token: w.token("agent-dev", w.get("agent-dev-0"), "broker"), agent: "dev"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			id, err := New(c, ns, "broker").Authenticate(t.Context(), tt.token)
			if errors.Is(err, ErrRefused) != tt.refused || (err != nil && !tt.refused) {
				t.Fatalf("err = %v, want refused %v", err, tt.refused)
			}
			if id.Agent != tt.agent {
				t.Errorf("agent %q, want %q", id.Agent, tt.agent)
			}
		})
	}

	t.Run("a stream ends when the pod goes", func(t *testing.T) {
		token := w.token("agent-ops", ops, "broker")
		a := New(c, ns, "broker")
		ended := make(chan error, 1)
		open := make(chan struct{})
		srv := httptest.NewServer(a.Require(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := a.watch(r.Context(), 20*time.Millisecond)
			defer cancel()
			close(open)
			<-ctx.Done()
			ended <- context.Cause(ctx)
		})))
		defer srv.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		done := make(chan error, 1)
		go func() {
			res, err := srv.Client().Do(req)
			if err == nil {
				err = res.Body.Close()
			}
			done <- err
		}()
		<-open
		before := reviews.Load()
		testrig.Until(t, "five more looks at a good token", func() bool { return reviews.Load() >= before+5 || len(ended) > 0 })
		if len(ended) > 0 {
			t.Fatalf("ended while the pod was there: %v", <-ended)
		}
		w.remove("agent-ops-0")
		remade := w.pod("agent-ops-0", "agent-ops")
		if err := <-ended; !errors.Is(err, ErrRefused) {
			t.Errorf("stream ended with %v, want refused", err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := New(c, ns, "broker").Authenticate(t.Context(), token); !errors.Is(err, ErrRefused) {
			t.Errorf("the old pod's token: %v, want refused", err)
		}
		if _, err := New(c, ns, "broker").Authenticate(t.Context(), w.token("agent-ops", remade, "broker")); err != nil {
			t.Errorf("the new pod's token: %v", err)
		}
	})
}

// counted counts the answers to token reviews.
type counted struct {
	http.RoundTripper
	reviews *atomic.Int64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		c.reviews.Add(1)
	}
	return res, err
}

// world makes objects at the API server.
type world struct {
	t  *testing.T
	c  kubernetes.Interface
	ns string
}

func (w world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w world) namespace() {
	_, err := w.c.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}, metav1.CreateOptions{})
	w.must(err)
}

func (w world) account(name string) {
	_, err := w.c.CoreV1().ServiceAccounts(w.ns).Create(w.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
}

func (w world) pod(name, account string) *corev1.Pod {
	p, err := w.c.CoreV1().Pods(w.ns).Create(w.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "agent", Image: "nisse-agent"}}},
	}, metav1.CreateOptions{})
	w.must(err)
	return p
}

func (w world) get(name string) *corev1.Pod {
	p, err := w.c.CoreV1().Pods(w.ns).Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	return p
}

func (w world) remove(name string) {
	zero := int64(0)
	w.must(w.c.CoreV1().Pods(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

func (w world) token(account string, bound *corev1.Pod, audiences ...string) string {
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if bound != nil {
		r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: bound.Name, UID: bound.UID}
	}
	r, err := w.c.CoreV1().ServiceAccounts(w.ns).CreateToken(w.t.Context(), account, r, metav1.CreateOptions{})
	w.must(err)
	return r.Status.Token
}
