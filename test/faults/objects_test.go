package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/stack"
)

// mended is what an Agent's conditions say when nothing hinders it but the missing kubelet.
const mended = api.ReasonStarting

// An Agent that names what is not there says so, and goes on once it is there, without anything being restarted.
func TestAgentsThatNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	secret := func(name string, labels, data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels}, StringData: data}
	}
	given := map[string]string{api.LabelAgentAccess: "true"}
	create := func(o client.Object) func() error { return func() error { return s.Admin.Create(t.Context(), o) } }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	unlabelled, keyless := secret("unlabelled", nil, map[string]string{"token": "x"}), secret("keyless", given, map[string]string{"other": "x"})
	must(s.Admin.Create(t.Context(), unlabelled))
	must(s.Admin.Create(t.Context(), keyless))
	cases := []struct {
		name            string
		change          func(*api.AgentSpec)
		reason, message string
		mend            func() error
	}{
		{
			"no-person", func(a *api.AgentSpec) {
				a.People = append(a.People, api.AgentPerson{Name: "anna", May: []api.Right{api.RightApprove}})
			},
			api.ReasonPersonNotFound, "Person anna does not exist.",
			create(&api.Person{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "anna"}, Spec: api.PersonSpec{Identities: api.Identities{Matrix: s.UserID("anna")}}}),
		},
		{
			"no-device", func(a *api.AgentSpec) { a.Devices = append(a.Devices, "web9") },
			api.ReasonDeviceNotFound, "Device web9 does not exist.",
			func() error {
				var d api.Device
				if err := s.Admin.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: stack.Device}, &d); err != nil {
					return err
				}
				return s.Admin.Create(t.Context(), &api.Device{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web9"}, Spec: d.Spec})
			},
		},
		{
			"no-secret", func(a *api.AgentSpec) { a.Models.Endpoint.Credentials = &api.SecretKey{Name: "missing", Key: "token"} },
			api.ReasonSecretNotUsable, "Secret missing does not exist.",
			create(secret("missing", given, map[string]string{"token": "x"})),
		},
		{
			"no-label", func(a *api.AgentSpec) {
				a.Models.Endpoint.Credentials = &api.SecretKey{Name: "unlabelled", Key: "token"}
			},
			api.ReasonSecretNotUsable, `Secret unlabelled lacks the label nisse.io/agent-access: "true", by which it is given to agents.`,
			func() error { unlabelled.Labels = given; return s.Admin.Update(t.Context(), unlabelled) },
		},
		{
			"no-key", func(a *api.AgentSpec) { a.Models.Endpoint.Credentials = &api.SecretKey{Name: "keyless", Key: "token"} },
			api.ReasonSecretNotUsable, "Secret keyless has no key token.",
			func() error {
				keyless.StringData = map[string]string{"token": "x"}
				return s.Admin.Update(t.Context(), keyless)
			},
		},
	}
	var ops api.Agent
	must(s.Admin.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: stack.Agent}, &ops))
	for _, c := range cases {
		a := &api.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: c.name}, Spec: *ops.Spec.DeepCopy()}
		a.Spec.Conversation.Matrix = api.MatrixConversation{UserID: s.UserID("nisse-" + c.name), Room: "#" + c.name + ":" + s.Home.ServerName}
		c.change(&a.Spec)
		must(s.Admin.Create(t.Context(), a))
	}
	for _, c := range cases {
		condition(s, c.name, api.ConditionReady, metav1.ConditionFalse, c.reason, c.message)
		condition(s, c.name, api.ConditionStalled, metav1.ConditionTrue, c.reason, c.message)
	}
	for _, c := range cases {
		must(c.mend())
	}
	for _, c := range cases {
		condition(s, c.name, api.ConditionReady, metav1.ConditionFalse, mended, "")
		gone(s, c.name, api.ConditionStalled)
	}
}

// An Agent without a room, and then with one: it comes in by itself, and what people say there is heard. As its device is missing, they
// are told that too.
func TestRoomThatDoesNotExist(t *testing.T) {
	t.Parallel()
	const alias, missing = "later", "Device web9 does not exist."
	s := stack.Start(t, stack.Options{Agent: func(a *api.Agent) { a.Spec.Devices = []string{stack.Device} }})
	var a api.Agent
	change := func(f func(*api.AgentSpec)) {
		t.Helper()
		s.Wait(stack.Patience, "the agent is changed", func(ctx context.Context) error {
			if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: stack.Agent}, &a); err != nil {
				return err
			}
			f(&a.Spec)
			return s.Admin.Update(ctx, &a)
		})
	}
	change(func(spec *api.AgentSpec) {
		spec.Conversation.Matrix.Room = "#" + alias + ":" + s.Home.ServerName
		spec.Devices = append(spec.Devices, "web9")
	})
	condition(s, stack.Agent, api.ConditionConnected, metav1.ConditionFalse, api.ReasonRoomNotFound, "")
	room, err := s.You.CreateRoom(t.Context(), person.RoomOptions{Alias: alias, Name: alias, Invite: []id.UserID{id.UserID(s.UserID("nisse-ops")), id.UserID(s.UserID("nisse-gates"))}})
	if err != nil {
		t.Fatal(err)
	}
	condition(s, stack.Agent, api.ConditionConnected, metav1.ConditionTrue, api.ReasonConnected, "")
	condition(s, stack.Agent, api.ConditionReady, metav1.ConditionFalse, api.ReasonDeviceNotFound, missing)
	s.Room = room.String()
	s.Say("what is in " + s.Files + "?")
	s.Hear("nisse-ops", `ops is not in order.*`+missing)
	change(func(spec *api.AgentSpec) { spec.Devices = []string{stack.Device} })
	gone(s, stack.Agent, api.ConditionStalled)
	s.Closed(api.ResultDone)
}

// One account that two Persons claim is nobody's: its owner is told, nothing that is said counts, and all is well when one lets go.
func TestIdentityOfTwo(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	g, _ := planned(s)
	twin := &api.Person{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "twin"}, Spec: api.PersonSpec{Identities: api.Identities{Matrix: s.UserID("lucas")}}}
	if err := s.Admin.Create(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"twin", stack.Person} {
		var p api.Person
		s.Wait(stack.Patience, name+" is told", func(ctx context.Context) error {
			if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &p); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionStalled); c == nil || c.Reason != api.ReasonIdentityShared || c.Message == "" {
				return fmt.Errorf("conditions: %+v", p.Status.Conditions)
			}
			return nil
		})
	}
	s.Say("approve rev-1")
	s.Hear("nisse-ops", `your account is claimed by more than one Person \(lucas and twin\)`)
	if err := s.Admin.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil || !g.Open() {
		t.Fatalf("nobody decided: %+v, %v", g.Status, err)
	}
	if err := s.Admin.Delete(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	s.Wait(stack.Patience, "lucas is somebody again", func(ctx context.Context) error {
		var p api.Person
		if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: stack.Person}, &p); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionReady) {
			return errors.New("not yet")
		}
		return nil
	})
	s.Say("approve rev-1")
	s.Closed(api.ResultDone)
	once(s)
}

// A model that is not there, by its name and by its address: the room and the item say so, and the work goes on once it is there. The
// test plays the kubelet that brings the mended configuration.
func TestModelThatDoesNotExist(t *testing.T) {
	t.Parallel()
	const missing = "no-such-model"
	var good api.Models
	s := stack.Start(t, stack.Options{Agent: func(a *api.Agent) {
		good = *a.Spec.Models.DeepCopy()
		role := a.Spec.Models.Roles["executor"]
		role.Model = missing
		a.Spec.Models.Roles["executor"] = role
	}})
	change := func(models api.Models, has string) {
		t.Helper()
		var a api.Agent
		var config corev1.ConfigMap
		s.Wait(stack.Patience, "the agent is changed", func(ctx context.Context) error {
			if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: stack.Agent}, &a); err != nil {
				return err
			}
			a.Spec.Models = models
			return s.Admin.Update(ctx, &a)
		})
		s.Wait(stack.Patience, "the configuration follows", func(ctx context.Context) error {
			if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: "agent-" + stack.Agent}, &config); err != nil {
				return err
			}
			if !strings.Contains(config.Data["config.json"], has) || strings.Contains(config.Data["config.json"], missing) {
				return errors.New(config.Data["config.json"])
			}
			return nil
		})
		s.Kill("agentruntime")
		if err := os.WriteFile(filepath.Join(s.Dir, "runtime", "config.json"), []byte(config.Data["config.json"]), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Revive("agentruntime")
	}
	root := s.Say("what is in " + s.Files + "?")
	item := newest(s, string(root))
	s.Hear("nisse-ops", `I cannot use my model: .*404.*`+missing)
	unusable(s, item, missing)
	elsewhere := *good.DeepCopy()
	elsewhere.Endpoint.URL += "/nowhere"
	change(elsewhere, `/nowhere"`)
	unusable(s, item, "404 Not Found: 404 page not found")
	s.Say("status")
	s.Hear("nisse-ops", `is being worked on, waits for the model of ops`)
	change(good, `/v1"`)
	s.Closed(api.ResultDone)
	if err := s.Admin.Get(t.Context(), client.ObjectKeyFromObject(item), item); err != nil || !meta.IsStatusConditionTrue(item.Status.Conditions, api.ConditionReady) {
		t.Errorf("conditions %+v, %v", item.Status.Conditions, err)
	}
}

// unusable waits until an item says that its agent cannot use its model, and why.
func unusable(s *stack.Stack, item *api.WorkItem, why string) {
	s.T.Helper()
	s.Wait(stack.Patience, "the item says that the model cannot be used: "+why, func(ctx context.Context) error {
		if err := s.Admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
			return err
		}
		c := meta.FindStatusCondition(item.Status.Conditions, api.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != api.ReasonModelUnusable || !strings.Contains(c.Message, why) || item.Status.WaitingFor != "the model of "+stack.Agent {
			return fmt.Errorf("it waits for %q, %+v", item.Status.WaitingFor, c)
		}
		return nil
	})
}

// condition waits for a condition of an Agent; an empty message accepts any.
func condition(s *stack.Stack, agent, kind string, status metav1.ConditionStatus, reason, message string) {
	s.T.Helper()
	s.Wait(stack.Patience, fmt.Sprintf("agent %s: %s is %s for %s", agent, kind, status, reason), func(ctx context.Context) error {
		c, err := conditionOf(ctx, s, agent, kind)
		if err != nil {
			return err
		}
		if c == nil || c.Status != status || c.Reason != reason || (message != "" && c.Message != message) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// gone waits until an Agent has no such condition, or it is False.
func gone(s *stack.Stack, agent, kind string) {
	s.T.Helper()
	s.Wait(stack.Patience, fmt.Sprintf("agent %s is not %s", agent, kind), func(ctx context.Context) error {
		c, err := conditionOf(ctx, s, agent, kind)
		if err != nil {
			return err
		}
		if c != nil && c.Status != metav1.ConditionFalse {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

func conditionOf(ctx context.Context, s *stack.Stack, agent, kind string) (*metav1.Condition, error) {
	var a api.Agent
	if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: agent}, &a); err != nil {
		return nil, err
	}
	return meta.FindStatusCondition(a.Status.Conditions, kind), nil
}
