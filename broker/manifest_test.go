package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/faultydevice"
	"nisse.io/nisse/test/signed"
)

// soon is when a change has reached the device: seconds, and less than the regular interval between two looks.
const soon = 15 * time.Second

const readA = `{"device":"web1","path":"/srv/a"}`

// look after the devices in the background until the test ends.
func (r *rig) look() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.broker.registry.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		must(r.t, <-ended)
	})
}

// online waits until the device's condition has a reason.
func (r *rig) online(reason string) {
	r.t.Helper()
	apitest.Wait(r.t, soon, func(context.Context) error {
		d := r.deviceNow()
		c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionOnline)
		if c == nil || c.Reason != reason || c.ObservedGeneration != d.Generation {
			return fmt.Errorf("condition %+v at generation %d, want %s", c, d.Generation, reason)
		}
		return nil
	})
}

// revoke everything up to an epoch.
func (r *rig) revoke(epoch int64) {
	r.t.Helper()
	d := r.deviceNow()
	r.spec(d, func() { d.Spec.RevokedEpoch = epoch })
}

// confirmed waits until the device has confirmed an epoch.
func (r *rig) confirmed(epoch int64) {
	r.t.Helper()
	apitest.Wait(r.t, soon, func(context.Context) error {
		if got := r.deviceNow().Status.RevokedEpoch; got != epoch {
			return fmt.Errorf("the device confirmed epoch %d, want %d", got, epoch)
		}
		return nil
	})
}

// The life of a manifest at a real device: brought, changed, revoked, signed anew.
func TestManifestsReachTheDevice(t *testing.T) {
	r := newRig(t, options{bare: true})
	r.look()
	r.online(v1alpha1.ReasonAnswering)
	r.want(r.do("c1", "exec", `{"device":"web1","argv":["/usr/bin/df","-h"]}`), doors.Done, "")
	p := r.submit("c2", "a")
	r.approve(p)

	// Whoever may edit the object and has no root key changes nothing but that nothing runs.
	was := r.manifest.Spec.Paths.Write[0].Glob
	r.spec(r.manifest, func() { r.manifest.Spec.Paths.Write[0].Glob = "/**" })
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Refused, "ManifestUnsigned")
	r.spec(r.manifest, func() { r.manifest.Spec.Paths.Write[0].Glob = was })
	r.want(r.do("c4", "fs_write", writeArgs("a", "x")), doors.Done, "")

	r.approve(r.submit("c5", "b"))
	epoch := r.manifest.Spec.Epoch
	r.revoke(epoch)
	r.want(r.do("c6", "fs_write", writeArgs("b", "x")), doors.Refused, "ManifestRevoked")
	r.confirmed(epoch)
	r.want(r.do("c7", "exec", `{"device":"web1","argv":["/usr/bin/df","-h"]}`), doors.Refused, "ManifestRevoked")

	r.sign(func(*v1alpha1.DeviceManifestSpec) {})
	r.want(r.do("c8", "fs_write", writeArgs("b", "x")), doors.Refused, "ManifestChanged") // what was approved names the one that is dead
	r.approve(r.submit("c9", "b"))
	r.want(r.do("c10", "fs_write", writeArgs("b", "x")), doors.Done, "")
	r.online(v1alpha1.ReasonAnswering)
	r.ran(2)
}

// A machine that lost its manifests gets them back, and so does one that refused a call for want of them.
func TestManifestsComeBack(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.want(r.do("c1", "fs_read", readA), doors.Done, "")
	r.approve(r.submit("c2", "a"))
	r.device.Forget()
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.device.Forget()
	r.want(r.do("c4", "fs_read", readA), doors.Refused, "OtherManifest") // final: the device has recorded it
	r.want(r.do("c5", "fs_read", readA), doors.Done, "")
	r.ran(1)
}

// A revocation reaches a device that was away, as soon as it is back.
func TestRevocationWaitsForTheDevice(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.look()
	r.online(v1alpha1.ReasonAnswering)
	r.device.Set(faultydevice.Fault{Silent: true})
	r.revoke(r.manifest.Spec.Epoch)
	r.online(v1alpha1.ReasonUnreachable)
	if got := r.device.Revoked(); got != 0 {
		t.Errorf("a silent device was told: %d", got)
	}
	r.device.Set(faultydevice.Fault{})
	r.confirmed(r.manifest.Spec.Epoch)
	r.online(v1alpha1.ReasonRevoked)
}

// What only the administrator's manifest allows is out of reach for an agent of privilege User, though the device holds both.
func TestPrivilege(t *testing.T) {
	r := newRig(t, options{})
	elevated, _ := signed.Manifest(t, r.rootKey, r.ns, fmt.Sprintf(`
v: 1
device: web1
privilege: Elevated
keys: {request: [%q], approval: [%q]}
commands: [{argv: [/usr/bin/id, -u], approval: None}]
limits: {writeBytes: 4096, outputBytes: 4096, timeoutSeconds: 30}`, dsse.EncodeKey(public(r.request)), dsse.EncodeKey(public(r.approver))))
	r.create(elevated)
	r.look()
	r.online(v1alpha1.ReasonAnswering)
	id := `{"device":"web1","argv":["/usr/bin/id","-u"]}`
	df := `{"device":"web1","argv":["/usr/bin/df","-h"]}`
	r.want(r.do("c1", "exec", id), doors.Refused, "NotListed")
	r.spec(r.agent, func() { r.agent.Spec.Privilege = v1alpha1.PrivilegeElevated })
	r.want(r.do("c2", "exec", id), doors.Done, "")
	r.want(r.do("c3", "exec", df), doors.Refused, "NotListed")
}

// A device that pins another root key takes nothing that the cluster's signs, and everybody is told.
func TestADeviceThatRefusesItsManifest(t *testing.T) {
	r := newRig(t, options{bare: true})
	d := r.deviceNow()
	r.rootKey = newKey(t)
	r.spec(d, func() { d.Spec.RootKey = dsse.EncodeKey(public(r.rootKey)) })
	r.sign(func(*v1alpha1.DeviceManifestSpec) {})
	res := r.do("c1", "exec", `{"device":"web1","argv":["/usr/bin/df","-h"]}`)
	r.want(res, doors.Refused, "ManifestRefused")
	if !strings.Contains(res.Message, "root key") && !strings.Contains(res.Message, "no manifest") {
		t.Errorf("message %q", res.Message)
	}
	r.look()
	r.online(v1alpha1.ReasonManifestRefused)
}
