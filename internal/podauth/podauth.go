// Package podauth tells which agent's pod speaks at a door. A projected token is reviewed by the API server for the door's own
// audience, and the pod it is bound to must be the agent's current one: a token that outlived its pod, was made for another
// audience or belongs to any other account is nobody's.
package podauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// MaxAge of a remembered answer, and the longest an open stream goes without another look.
const MaxAge = 10 * time.Second

// ErrRefused is wrapped when the token is not one of an agent's current pod. Any other error means that nobody could be asked.
var ErrRefused = errors.New("token refused")

// Keys in the extra of a reviewed user, set by the API server for tokens bound to a pod.
const (
	extraPodName = "authentication.kubernetes.io/pod-name"
	extraPodUID  = "authentication.kubernetes.io/pod-uid"
)

// maxRemembered answers; beyond it nothing is remembered until some are too old.
const maxRemembered = 1024

// Identity of the pod that speaks.
type Identity struct {
	// Agent by name.
	Agent string
	// PodUID of its current pod.
	PodUID string
}

// Reviewer reviews tokens.
type Reviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, opts metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// Pods reads the pods of the agents' namespace.
type Pods interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
}

// Authenticator of one door.
type Authenticator struct {
	reviewer  Reviewer
	pods      Pods
	namespace string
	audience  string
	now       func() time.Time

	limits   limits
	underWay underWay

	mu   sync.Mutex
	seen map[[sha256.Size]byte]answer
}

type answer struct {
	identity Identity
	at       time.Time
}

// New returns the authenticator of the door with this audience, for agents of this namespace.
func New(c kubernetes.Interface, namespace, audience string) *Authenticator {
	return newAuthenticator(c.AuthenticationV1().TokenReviews(), c.CoreV1().Pods(namespace), namespace, audience, time.Now)
}

func newAuthenticator(r Reviewer, p Pods, namespace, audience string, now func() time.Time) *Authenticator {
	return &Authenticator{reviewer: r, pods: p, namespace: namespace, audience: audience, now: now, seen: map[[sha256.Size]byte]answer{}}
}

// Authenticate tells whose token it is. A good answer is remembered for MaxAge; a refusal is not, so that a pod whose token was
// refused for a reason that passed need not wait.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (Identity, error) {
	if token == "" {
		return Identity{}, fmt.Errorf("%w: no bearer token; send the projected token with audience %q", ErrRefused, a.audience)
	}
	if id, ok := a.recall(token); ok {
		return id, nil
	}
	return a.fresh(ctx, token)
}

// fresh asks, whatever is remembered.
func (a *Authenticator) fresh(ctx context.Context, token string) (Identity, error) {
	at := a.now() // before asking: what is remembered is as old as the question
	id, err := a.ask(ctx, token)
	if err != nil {
		return Identity{}, err
	}
	a.remember(sha256.Sum256([]byte(token)), answer{id, at})
	return id, nil
}

func (a *Authenticator) ask(ctx context.Context, token string) (Identity, error) {
	review, err := a.reviewer.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{a.audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return Identity{}, fmt.Errorf("review token: %w", err)
	}
	agent, podUID, err := judge(review.Status, a.namespace, a.audience)
	if err != nil {
		return Identity{}, err
	}
	name := PodName(agent)
	pod, err := a.pods.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Identity{}, fmt.Errorf("%w: pod %s does not exist", ErrRefused, name)
	case err != nil:
		return Identity{}, fmt.Errorf("read pod %s: %w", name, err)
	case string(pod.UID) != podUID:
		return Identity{}, fmt.Errorf("%w: the token is bound to an earlier pod %s", ErrRefused, name)
	case !pod.DeletionTimestamp.IsZero():
		return Identity{}, fmt.Errorf("%w: pod %s is being deleted", ErrRefused, name)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return Identity{}, fmt.Errorf("%w: pod %s has ended", ErrRefused, name)
	}
	return Identity{Agent: agent, PodUID: podUID}, nil
}

// PodName of an agent: its StatefulSet has one replica.
func PodName(agent string) string { return "agent-" + agent + "-0" }

// judge reads an answered review. The audience is looked for in the answer, because an authenticator that knows nothing of
// audiences answers without any, and its word would then hold for every audience.
func judge(s authenticationv1.TokenReviewStatus, namespace, audience string) (agent, podUID string, err error) {
	if !s.Authenticated || s.Error != "" {
		return "", "", fmt.Errorf("%w: the API server does not know this token, or not for audience %q", ErrRefused, audience)
	}
	if !slices.Contains(s.Audiences, audience) {
		return "", "", fmt.Errorf("%w: reviewed for audiences %q, want %q", ErrRefused, s.Audiences, audience)
	}
	account, ok := strings.CutPrefix(s.User.Username, "system:serviceaccount:"+namespace+":")
	if !ok {
		return "", "", fmt.Errorf("%w: %q is no service account of namespace %s", ErrRefused, s.User.Username, namespace)
	}
	agent, ok = strings.CutPrefix(account, "agent-")
	if !ok || agent == "" {
		return "", "", fmt.Errorf("%w: service account %q is no agent's", ErrRefused, account)
	}
	pod, okName := one(s.User.Extra[extraPodName])
	podUID, okUID := one(s.User.Extra[extraPodUID])
	if !okName || !okUID {
		return "", "", fmt.Errorf("%w: the token is not bound to a pod", ErrRefused)
	}
	if pod != PodName(agent) {
		return "", "", fmt.Errorf("%w: the token is bound to pod %q, want %q", ErrRefused, pod, PodName(agent))
	}
	return agent, podUID, nil
}

func one(v authenticationv1.ExtraValue) (string, bool) {
	if len(v) != 1 || v[0] == "" {
		return "", false
	}
	return v[0], true
}

func (a *Authenticator) recall(token string) (Identity, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.seen[sha256.Sum256([]byte(token))]
	if !ok || a.now().Sub(s.at) >= MaxAge {
		return Identity{}, false
	}
	return s.identity, true
}

func (a *Authenticator) remember(key [sha256.Size]byte, s answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) >= maxRemembered {
		for k, v := range a.seen {
			if a.now().Sub(v.at) >= MaxAge {
				delete(a.seen, k)
			}
		}
	}
	if len(a.seen) < maxRemembered {
		a.seen[key] = s
	}
}
