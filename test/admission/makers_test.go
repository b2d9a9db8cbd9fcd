package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/names"
)

// Every way of making each object, by everybody.
func TestCreate(t *testing.T) {
	everybody := []string{manager, broker, gateway, agent, lucas, mallory, "matrix:" + alice, "system:node:n", "system:serviceaccount:kube-system:namespace-controller"}
	for _, c := range []struct {
		name string
		make func(name string) client.Object
		may  []string
	}{
		{"gate", func(n string) client.Object { return gate(n) }, []string{manager}},
		{"plan", func(n string) client.Object { return plan(n) }, []string{broker}},
		{"job", func(n string) client.Object { return job(n) }, []string{broker}},
		{"item from a room", func(n string) client.Object { return workItem(n, api.SourceMatrix) }, []string{gateway}},
		{"item by hand", func(n string) client.Object { return workItem(n, api.SourceKubernetes) },
			[]string{manager, broker, agent, lucas, mallory, "matrix:" + alice, "system:node:n", "system:serviceaccount:kube-system:namespace-controller"}},
		{"approval as lucas", func(n string) client.Object { return approval(n, lucas, api.ChannelKubernetes) }, []string{lucas}},
		{"approval as alice of Matrix", func(n string) client.Object { return approval(n, "matrix:"+alice, api.ChannelMatrix) }, []string{gateway}},
		{"approval as alice, by kubectl", func(n string) client.Object { return approval(n, "matrix:"+alice, api.ChannelKubernetes) }, nil},
		{"approval as lucas, by Matrix", func(n string) client.Object { return approval(n, lucas, api.ChannelMatrix) }, nil},
		{"approval as bob, event of alice", func(n string) client.Object { return approval(n, "matrix:@bob:example.org", api.ChannelMatrix) }, nil},
		{"approval as the agent", func(n string) client.Object { return approval(n, agent, api.ChannelKubernetes) }, nil},
		{"approval as the gateway", func(n string) client.Object { return approval(n, gateway, api.ChannelKubernetes) }, nil},
		{"approval as the manager", func(n string) client.Object { return approval(n, manager, api.ChannelKubernetes) }, nil},
		{"approval as a node", func(n string) client.Object { return approval(n, "system:node:n", api.ChannelKubernetes) }, nil},
	} {
		for i, who := range everybody {
			t.Run(c.name+" by "+who, func(t *testing.T) {
				want := false
				for _, m := range c.may {
					want = want || m == who
				}
				name := fmt.Sprintf("%s-%d", strings.Trim(strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(c.name)), "-"), i)
				for how, do := range creates(who, c.make, name) {
					if err := do(); (err == nil) != want {
						t.Errorf("%s: allowed is %v, want %v: %v", how, err == nil, want, err)
					} else if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
						t.Errorf("%s: refused for another reason: %v", how, err)
					}
				}
			})
		}
	}
}

func creates(who string, mk func(string) client.Object, name string) map[string]func() error {
	ctx, c := context.Background(), as(who)
	return map[string]func() error{
		"create":            func() error { return c.Create(ctx, mk(name+"-c")) },
		"dry run":           func() error { return c.Create(ctx, mk(name+"-d"), client.DryRunAll) },
		"server-side apply": func() error { return apply(ctx, c, mk(name+"-a")) },
	}
}

// apply makes an object by server-side apply; who applies as the same field owner later can take away what it holds.
func apply(ctx context.Context, c client.Client, o client.Object) error {
	u := must(runtime.DefaultUnstructuredConverter.ToUnstructured(o))
	gvk := must(c.GroupVersionKindFor(o))
	u["apiVersion"], u["kind"] = gvk.GroupVersion().String(), gvk.Kind
	delete(u, "status")
	if m, ok := u["metadata"].(map[string]any); ok {
		delete(m, "creationTimestamp")
	}
	return c.Patch(ctx, &unstructured.Unstructured{Object: u}, client.RawPatch(types.ApplyPatchType, must(json.Marshal(u))), client.FieldOwner(owner), client.ForceOwnership)
}

// Whoever sees an event in a room knows the names that it will get. None of them can be taken before the gateway gets there: it would
// find its work done, and the person's words or decision would be lost.
func TestNamesOfChatEventsAreTheGateways(t *testing.T) {
	event := "$seen-by-all"
	item, decision := names.WorkItem(time.Now(), "!r:x", event), names.Approval("!r:x", event)
	for _, who := range []string{manager, broker, agent, lucas, mallory} {
		for how, do := range creates(who, func(string) client.Object { return workItem(item, api.SourceKubernetes) }, "") {
			if err := do(); !apierrors.IsForbidden(err) {
				t.Errorf("%s took the item's name by %s: %v", who, how, err)
			}
		}
		for how, do := range creates(who, func(string) client.Object { return approval(decision, who, api.ChannelKubernetes) }, "") {
			if err := do(); !apierrors.IsForbidden(err) {
				t.Errorf("%s took the decision's name by %s: %v", who, how, err)
			}
		}
	}
	generated := workItem("", api.SourceKubernetes)
	generated.GenerateName = "wi-"
	ctx := context.Background()
	for who, o := range map[string]client.Object{
		"the gateway's item": workItem(item, api.SourceMatrix), "the gateway's decision": approval(decision, "matrix:"+alice, api.ChannelMatrix), "a generated name": generated,
	} {
		c := as(gateway)
		if o == client.Object(generated) {
			c = as(lucas)
		}
		if err := c.Create(ctx, o); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}
