package deviceaudit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/names"
)

// What is kept of a device at most: so many checkpoints, and so many bytes in all. A ConfigMap holds twice those bytes; the other half is a finding's,
// which has to fit in whatever was kept before it.
const (
	most = 200
	room = 512 << 10
)

// keeping of one device: a ConfigMap that the manager alone writes.
type keeping struct {
	config *corev1.ConfigMap     // as it was read; nil when there is none
	last   checkpoint.Checkpoint // zero when there is none
	at     metav1.Time           // when last was kept
	broken *checkpoint.Broken
	lost   *checkpoint.Finding // that was kept once and is gone with the ConfigMap
	anchor string              // order that the line began by
}

// found tells whether the audit is broken.
func (k keeping) found() bool { return k.broken != nil || k.lost != nil }

// read what is kept, live.
func read(ctx context.Context, live client.Reader, system, namespace, device string) (keeping, error) {
	var c corev1.ConfigMap
	err := live.Get(ctx, client.ObjectKey{Namespace: system, Name: names.Audit(namespace, device)}, &c)
	if apierrors.IsNotFound(err) {
		return keeping{}, nil
	}
	if err != nil {
		return keeping{}, fmt.Errorf("read what is kept of the audit: %w", err)
	}
	k := keeping{config: &c, anchor: c.Data[checkpoint.KeyAnchor]}
	if k.broken, err = checkpoint.ReadBroken(c.Data); err != nil {
		return keeping{}, fmt.Errorf("ConfigMap %s: %w", c.Name, err)
	}
	all := checkpoint.Keys(c.Data)
	if len(all) == 0 {
		return k, nil
	}
	e, last, err := checkpoint.ReadEntry(c.Data, all[len(all)-1])
	if err != nil {
		return keeping{}, fmt.Errorf("ConfigMap %s: %w", c.Name, err)
	}
	k.last = last
	if at, err := time.Parse(time.RFC3339, e.At); err == nil {
		k.at = metav1.NewTime(at)
	}
	return k, nil
}

// keep a checkpoint, the newest from now on.
func (k keeping) keep(ctx context.Context, c client.Client, system, namespace, device string, r checkpoint.Opened, now time.Time) error {
	b, err := json.Marshal(checkpoint.Entry{Root: r.At.Root.String(), Line: r.At.Line, At: now.UTC().Format(time.RFC3339), Now: r.Now, Note: r.Checkpoint})
	if err != nil {
		return err
	}
	return k.write(ctx, c, system, namespace, device, checkpoint.Key(r.At.Rows), string(b))
}

// end the keeping by a finding.
func (k keeping) end(ctx context.Context, c client.Client, system, namespace, device string, f checkpoint.Finding, reply string, now time.Time) error {
	b, err := json.Marshal(checkpoint.Broken{Finding: f, At: now.UTC().Format(time.RFC3339), Reply: reply})
	if err != nil {
		return err
	}
	return k.write(ctx, c, system, namespace, device, checkpoint.KeyBroken, string(b))
}

func (k keeping) write(ctx context.Context, c client.Client, system, namespace, device, key, value string) error {
	if k.config == nil {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.Audit(namespace, device)}, Data: map[string]string{key: value}}
		if err := c.Create(ctx, m); err != nil {
			return fmt.Errorf("keep a checkpoint of the audit: %w", err)
		}
		return nil
	}
	after := k.config.DeepCopy()
	if after.Data == nil {
		after.Data = map[string]string{}
	}
	after.Data[key] = value
	prune(after.Data, key)
	if err := c.Patch(ctx, after, client.MergeFromWithOptions(k.config, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("keep a checkpoint of the audit: %w", err)
	}
	return nil
}

// prune the oldest checkpoints until the rest is not too much, but never what is being written.
func prune(data map[string]string, written string) {
	size := 0
	for key, value := range data {
		size += len(key) + len(value)
	}
	for all := checkpoint.Keys(data); len(all) > 0 && all[0] != written && (len(all) > most || size > room); all = all[1:] {
		size -= len(all[0]) + len(data[all[0]])
		delete(data, all[0])
	}
}

// begin a line that the root key has ordered, by its first checkpoint. What was kept of the line before goes into a ConfigMap of its own, for ever.
func (k keeping) begin(ctx context.Context, c client.Client, live client.Reader, system, namespace, device, order string, r checkpoint.Opened, now time.Time) error {
	b, err := json.Marshal(checkpoint.Entry{Root: r.At.Root.String(), Line: r.At.Line, At: now.UTC().Format(time.RFC3339), Now: r.Now, Note: r.Checkpoint})
	if err != nil {
		return err
	}
	if k.config == nil { // somebody has taken it away; of its line the status alone bears the last checkpoint
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.Audit(namespace, device)},
			Data: map[string]string{checkpoint.KeyAnchor: order, checkpoint.Key(r.At.Rows): string(b)}}
		if err := c.Create(ctx, m); err != nil {
			return fmt.Errorf("keep a checkpoint of the audit: %w", err)
		}
		return nil
	}
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.AuditLine(namespace, device, k.last.Line)}, Data: k.config.Data}
	if err := aside(ctx, c, live, old, now); err != nil {
		return fmt.Errorf("keep line %d of the audit: %w", k.last.Line, err)
	}
	after := k.config.DeepCopy()
	after.Data = map[string]string{checkpoint.KeyAnchor: order, checkpoint.Key(r.At.Rows): string(b)}
	if err := c.Patch(ctx, after, client.MergeFromWithOptions(k.config, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("keep a checkpoint of the audit: %w", err)
	}
	return nil
}

// aside puts a line that has ended, once. The name may be taken: by a pass that was stopped right after this, or by the line of a device that had
// this device's name before, which stays too.
func aside(ctx context.Context, c client.Client, live client.Reader, old *corev1.ConfigMap, now time.Time) error {
	err := c.Create(ctx, old)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var there corev1.ConfigMap
	if err := live.Get(ctx, client.ObjectKeyFromObject(old), &there); err != nil || maps.Equal(there.Data, old.Data) {
		return err
	}
	old.Name = fmt.Sprintf("%s.%d", old.Name, now.Unix())
	return c.Create(ctx, old)
}
