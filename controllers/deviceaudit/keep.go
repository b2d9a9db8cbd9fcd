package deviceaudit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/names"
)

// most checkpoints that are kept of a device.
const most = 200

// keyBroken of the finding that ended the keeping. Every other key is the number of rows of a checkpoint.
const keyBroken = "broken"

// entry of a checkpoint that was kept.
type entry struct {
	Root string `json:"root"`
	// At in RFC 3339 by the manager's clock, and Now in Unix seconds by the device's.
	At  string `json:"at"`
	Now int64  `json:"now"`
	// Note as the device signed it.
	Note string `json:"note"`
}

// broken is what was found, and the reply that it was found by.
type broken struct {
	checkpoint.Finding
	At    string `json:"at"`
	Reply string `json:"reply"`
}

// keeping of one device: a ConfigMap that the manager alone writes.
type keeping struct {
	config *corev1.ConfigMap // as it was read; nil when there is none
	last   checkpoint.Kept   // zero when there is none
	at     metav1.Time       // when last was kept
	broken *broken
}

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
	k := keeping{config: &c}
	if text := c.Data[keyBroken]; text != "" {
		k.broken = &broken{}
		if err := json.Unmarshal([]byte(text), k.broken); err != nil {
			return keeping{}, fmt.Errorf("ConfigMap %s: %s: %w", c.Name, keyBroken, err)
		}
	}
	all := sizes(c.Data)
	if len(all) == 0 {
		return k, nil
	}
	key := all[len(all)-1]
	var e entry
	if err := json.Unmarshal([]byte(c.Data[key]), &e); err != nil {
		return keeping{}, fmt.Errorf("ConfigMap %s: %s: %w", c.Name, key, err)
	}
	if k.last.Rows, err = strconv.ParseInt(key, 10, 64); err == nil {
		k.last.Root, err = checkpoint.ParseRoot(e.Root)
	}
	if err != nil {
		return keeping{}, fmt.Errorf("ConfigMap %s: %s: %w", c.Name, key, err)
	}
	k.last.Now = e.Now
	if at, err := time.Parse(time.RFC3339, e.At); err == nil {
		k.at = metav1.NewTime(at)
	}
	return k, nil
}

// sizes of the checkpoints that are kept, as keys, in order.
func sizes(data map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(key string) bool { return strings.Trim(key, "0123456789") != "" })
}

// keep a checkpoint, the newest from now on.
func (k keeping) keep(ctx context.Context, c client.Client, system, namespace, device string, r checkpoint.Opened, now time.Time) error {
	b, err := json.Marshal(entry{Root: r.At.Root.String(), At: now.UTC().Format(time.RFC3339), Now: r.Now, Note: r.Checkpoint})
	if err != nil {
		return err
	}
	return k.write(ctx, c, system, namespace, device, fmt.Sprintf("%019d", r.At.Rows), string(b))
}

// end the keeping by a finding.
func (k keeping) end(ctx context.Context, c client.Client, system, namespace, device string, f checkpoint.Finding, reply string, now time.Time) error {
	b, err := json.Marshal(broken{f, now.UTC().Format(time.RFC3339), reply})
	if err != nil {
		return err
	}
	return k.write(ctx, c, system, namespace, device, keyBroken, string(b))
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
	all := sizes(after.Data)
	for _, old := range all[:max(0, len(all)-most)] {
		delete(after.Data, old)
	}
	if err := c.Patch(ctx, after, client.MergeFromWithOptions(k.config, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("keep a checkpoint of the audit: %w", err)
	}
	return nil
}
