package controllertest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// What differs between two plays of one scene though nothing is different: identities, times, and what is computed from them.
var passing = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}`), "<digest>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<time>"},
	{regexp.MustCompile(`\d\d:\d\d UTC( on \d+ \w+( \d{4})?)?`), "<clock>"},
	{regexp.MustCompile(`"statement": ".+"`), `"statement": "<statement>"`},
}

// Snapshot tells all there is in the World's namespace, without what differs from one World to the next.
func (w *World) Snapshot() string {
	w.T.Helper()
	lists := []client.ObjectList{&v1alpha1.PersonList{}, &v1alpha1.AgentList{}, &v1alpha1.WorkItemList{}, &v1alpha1.PlanList{}, &v1alpha1.GateList{},
		&v1alpha1.ApprovalList{}, &corev1.ServiceAccountList{}, &corev1.ConfigMapList{}, &networkingv1.NetworkPolicyList{}, &corev1.PersistentVolumeClaimList{},
		&appsv1.StatefulSetList{}, &corev1.PodList{}}
	reading, ctx := errgroup.WithContext(w.T.Context())
	for _, l := range lists {
		reading.Go(func() error { return w.Admin.List(ctx, l, client.InNamespace(w.NS)) })
	}
	if err := reading.Wait(); err != nil {
		w.T.Fatal(err)
	}
	var all strings.Builder
	for _, l := range lists {
		if err := meta.EachListItem(l, func(o runtime.Object) error {
			c := o.(client.Object)
			c.SetUID("")
			c.SetResourceVersion("")
			c.SetManagedFields(nil)
			b, err := json.MarshalIndent(c, "", " ")
			fmt.Fprintf(&all, "%T %s\n", o, b)
			return err
		}); err != nil {
			w.T.Fatal(err)
		}
	}
	s := strings.ReplaceAll(all.String(), w.NS, "<namespace>")
	for _, p := range passing {
		s = p.what.ReplaceAllString(s, p.as)
	}
	return s
}
