package devices

import (
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What a device refuses may hold the present second, and what fails a port: that alone is no news, or every look would write.
func TestTheSameTroubleIsWrittenOnce(t *testing.T) {
	refused := func(why string) seen { return seen{refused: map[string]error{"web1.user": errors.New(why)}} }
	for _, c := range []struct {
		name                string
		first, again, other seen
	}{
		{"a manifest", refused("signed at 1800000100, and here it is 1800000001"), refused("signed at 1800000100, and here it is 1800000031"), refused("its epoch was revoked")},
		{"a revocation", seen{revoking: errors.New("read 127.0.0.1:4001: reset")}, seen{revoking: errors.New("read 127.0.0.1:4002: broken pipe")}, refused("x")},
		{"an order", seen{anchoring: errors.New("ordered at 1800000100, and here it is 1800000001")}, seen{anchoring: errors.New("ordered at 1800000100, and here it is 1800000031")}, seen{}},
		{"all is well", seen{}, seen{}, seen{anchoring: errors.New("x")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			for n, look := range []struct {
				seen
				written bool
			}{{c.first, true}, {c.again, false}, {c.other, true}} {
				was := r.d.ResourceVersion
				r.registry.note(t.Context(), r.d, look.seen)
				r.must(r.api.Get(t.Context(), client.ObjectKeyFromObject(r.d), r.d))
				if written := r.d.ResourceVersion != was; written != look.written {
					t.Errorf("look %d: written %v: %+v", n+1, written, r.d.Status.Conditions)
				}
			}
		})
	}
}
