package agent

import (
	"cmp"

	"nisse.io/nisse/api/v1alpha1"
)

// Choose returns the name of the item an agent works on: the one it works on already, until that is closed; then the oldest that
// is not. Empty means idle.
func Choose(active string, items []v1alpha1.WorkItem) string {
	var oldest *v1alpha1.WorkItem
	for i := range items {
		w := &items[i]
		if w.Status.State == v1alpha1.WorkItemClosed || !w.DeletionTimestamp.IsZero() {
			continue
		}
		if w.Name == active {
			return active
		}
		if oldest == nil || cmp.Or(w.CreationTimestamp.Compare(oldest.CreationTimestamp.Time), cmp.Compare(w.Name, oldest.Name)) < 0 {
			oldest = w
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.Name
}
