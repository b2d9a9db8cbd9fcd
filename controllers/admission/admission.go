// Package admission finds out whether the API server keeps forged Approvals out. Without the admission policies anybody who may
// create an Approval could speak for anybody, so no gate opens before this has been seen to fail.
package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// ErrMissing is wrapped when a forged Approval was let through, or when it cannot be told.
var ErrMissing = errors.New("admission policies are missing")

const (
	// fresh is how long a good answer counts.
	fresh = 24 * time.Hour
	// again is how soon a bad one is looked at anew.
	again = time.Minute
)

// Creator makes objects; the probe only ever does so as a dry run.
type Creator interface {
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
}

// Probe tries forged Approvals and remembers what came of it. It is safe for concurrent use.
type Probe struct {
	Client Creator
	Now    func() time.Time

	mu   sync.Mutex
	seen map[string]answer
}

type answer struct {
	at  time.Time
	err error
}

// Enforced returns nil when the namespace is guarded. Its answer is a day old at most.
func (p *Probe) Enforced(ctx context.Context, namespace string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.seen[namespace]; ok {
		keep := fresh
		if a.err != nil {
			keep = again
		}
		// An answer from the future is from a clock that was put back since: it would count until the clock is there again.
		if age := p.Now().Sub(a.at); age >= 0 && age < keep {
			return a.err
		}
	}
	err := p.try(ctx, namespace)
	if err != nil && !errors.Is(err, ErrMissing) {
		return err // the API server could not be asked; that is no answer, and none is kept
	}
	if p.seen == nil {
		p.seen = map[string]answer{}
	}
	p.seen[namespace] = answer{p.Now(), err}
	return err
}

// Retry is when a bad answer is looked at anew.
func Retry() time.Duration { return again }

func (p *Probe) try(ctx context.Context, namespace string) error {
	for what, spec := range forgeries() {
		a := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "forged-"}, Spec: spec}
		err := p.Client.Create(ctx, a, client.DryRunAll)
		switch {
		case err == nil:
			return fmt.Errorf("%w: an Approval %s was let through in namespace %s; install config/admission", ErrMissing, what, namespace)
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			// Refused by the policy. A refusal by RBAC would say nothing of those who have the right.
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err):
			return fmt.Errorf("%w: whether an Approval %s is let through in namespace %s cannot be told: %w", ErrMissing, what, namespace, err)
		default:
			return fmt.Errorf("try a forged approval: %w", err)
		}
	}
	return nil
}

func forgeries() map[string]v1alpha1.ApprovalSpec {
	spec := func(approver string, c v1alpha1.Channel) v1alpha1.ApprovalSpec {
		return v1alpha1.ApprovalSpec{Gate: v1alpha1.GateRef{Name: "admission-self-test", UID: "none"}, Digest: "sha256:" + strings.Repeat("0", 64),
			Decision: v1alpha1.DecisionReject, Approver: approver, Channel: c}
	}
	const user = "@forged:nisse.invalid"
	return map[string]v1alpha1.ApprovalSpec{
		"in another user's name": spec("forged@nisse.invalid", v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}),
		"in a chat user's name": spec("matrix:"+user, v1alpha1.Channel{Kind: v1alpha1.ChannelMatrix, Evidence: v1alpha1.EvidenceTyped,
			Matrix: &v1alpha1.MatrixEvent{Room: "!none:nisse.invalid", EventID: "$none", Sender: user}}),
	}
}
