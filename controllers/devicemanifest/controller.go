// Package devicemanifest tells of each manifest whether it is in force: signed by the device's root key as it stands, not over, and not
// revoked. Nobody decides by that status; whoever judges with a manifest looks at the signature.
package devicemanifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
)

// Reconciler of manifests.
type Reconciler struct {
	Client client.Client
	Now    func() time.Time
}

// Reconcile one manifest.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	var m v1alpha1.DeviceManifest
	if err := r.Client.Get(ctx, req.NamespacedName, &m); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if !m.DeletionTimestamp.IsZero() {
		return pass.Result(nil)
	}
	d := new(v1alpha1.Device)
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Device}, d)
	switch {
	case apierrors.IsNotFound(err):
		d = nil
	case err != nil:
		return pass.Result(fmt.Errorf("read device %s: %w", m.Spec.Device, err))
	}
	after := m.DeepCopy()
	left := settle(after, d, r.Now())
	if _, err := pass.WriteStatus(ctx, r.Client, &m, after); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil // its end is an event that nobody sends
	}
	return pass.Result(nil)
}

// verdict on a manifest.
type verdict struct {
	// signed as it stands by the device's root key; Unknown where that cannot be told.
	signed metav1.ConditionStatus
	// reason and message why it is not in force; empty when it is.
	reason  string
	message string
	digest  string
	// left until it ends by itself.
	left time.Duration
}

// settle the status and return the time until it changes by itself; zero when it does not.
func settle(m *v1alpha1.DeviceManifest, d *v1alpha1.Device, now time.Time) time.Duration {
	v := judge(m.Spec, d, now)
	v.message = sanitize.Line(v.message, 1000)
	st, gen := &m.Status, m.Generation
	st.ObservedGeneration, st.Digest = gen, v.digest
	if v.signed == metav1.ConditionTrue {
		condition.Set(&st.Conditions, gen, v1alpha1.ConditionSigned, v.signed, v1alpha1.ReasonSignatureValid, "")
	} else {
		condition.Set(&st.Conditions, gen, v1alpha1.ConditionSigned, v.signed, v.reason, v.message)
	}
	if v.reason != "" {
		condition.Stalled(&st.Conditions, gen, v.reason, v.message)
		return 0
	}
	condition.Ready(&st.Conditions, gen, metav1.ConditionTrue, v1alpha1.ReasonInForce, "")
	return v.left
}

// judge a manifest. d is nil when its device does not exist.
func judge(spec v1alpha1.DeviceManifestSpec, d *v1alpha1.Device, now time.Time) verdict {
	v := verdict{signed: metav1.ConditionFalse}
	because := func(reason, format string, args ...any) verdict {
		v.reason, v.message = reason, fmt.Sprintf(format, args...)
		return v
	}
	text, err := spec.Text()
	if err != nil {
		return because(v1alpha1.ReasonInvalidManifest, "%v.", err)
	}
	kept := manifest.Kept{Text: text, Signature: spec.Signature}
	if d != nil {
		kept.RootKey, kept.Revoked = d.Spec.RootKey, d.Spec.RevokedEpoch
	}
	m, err := kept.InForce(now)
	if m != nil {
		var bad error
		if v.digest, bad = m.Digest(); bad != nil {
			return because(v1alpha1.ReasonInvalidManifest, "%v.", bad)
		}
	}
	switch {
	case errors.Is(err, manifest.ErrUnsigned):
		return because(v1alpha1.ReasonUnsigned, "Sign it where the root key is: kubectl nisse manifest sign.")
	case errors.Is(err, manifest.ErrInvalid):
		return because(v1alpha1.ReasonInvalidManifest, "%v.", err)
	case d == nil:
		v.signed = metav1.ConditionUnknown
		return because(v1alpha1.ReasonDeviceNotFound, "Device %s does not exist; its root key is not known.", spec.Device)
	case errors.Is(err, manifest.ErrOtherText):
		return because(v1alpha1.ReasonOtherText, "It was changed after it was signed; sign it again.")
	case errors.Is(err, manifest.ErrOtherKey):
		return because(v1alpha1.ReasonOtherKey, "Device %s: %v.", d.Name, err)
	}
	v.signed = metav1.ConditionTrue
	switch {
	case errors.Is(err, manifest.ErrRevoked):
		return because(v1alpha1.ReasonRevoked, "Device %s was revoked up to epoch %d; sign it again to bring it back.", d.Name, d.Spec.RevokedEpoch)
	case errors.Is(err, manifest.ErrEnded):
		return because(v1alpha1.ReasonManifestExpired, "It ended at %s; set expiresAt and sign it again.", m.ExpiresAt)
	case err != nil:
		return because(v1alpha1.ReasonInvalidManifest, "%v.", err)
	}
	end, err := m.Expiry()
	if err != nil {
		return because(v1alpha1.ReasonInvalidManifest, "%v.", err)
	}
	v.left = end.Sub(now)
	return v
}

// +kubebuilder:rbac:groups=nisse.io,resources=devicemanifests;devices,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=devicemanifests/status,verbs=patch

// Setup adds the controller to the manager. A change of a Device is one of its manifests.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("devicemanifest").
		For(&v1alpha1.DeviceManifest{}).
		Watches(&v1alpha1.Device{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			var all []reconcile.Request
			for _, p := range []v1alpha1.Privilege{v1alpha1.PrivilegeUser, v1alpha1.PrivilegeElevated} {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: names.Manifest(o.GetName(), string(p))}})
			}
			return all
		})).
		Complete(r)
}
