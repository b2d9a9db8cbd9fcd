package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/apitest"
)

// Namespaces of the installed roles.
const (
	agents = "nisse"
	system = "nisse-system"
)

// installed are Nisse's four ServiceAccounts under the roles that are installed, each with a token that the API server gave out.
type installed map[string]*rest.Config

// install the roles once and wait until they act: the API server's authorizer hears of a role a moment after it is made.
func install(t *testing.T) installed {
	t.Helper()
	ctx, admin := t.Context(), must(client.New(base, client.Options{Scheme: sch}))
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agents}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}},
		account(system, "nisse-manager"), account(system, "nisse-broker"), account(system, "nisse-gateway"), account(agents, "agent-ops"),
	} {
		if err := admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	apitest.Install(t, admin, apitest.Path("config", "rbac"))
	all := installed{}
	for name, a := range map[string]*corev1.ServiceAccount{
		"manager": account(system, "nisse-manager"), "broker": account(system, "nisse-broker"), "gateway": account(system, "nisse-gateway"), "agent": account(agents, "agent-ops"),
	} {
		request := &authenticationv1.TokenRequest{}
		if err := admin.SubResource("token").Create(ctx, a, request); err != nil {
			t.Fatal(err)
		}
		all[name] = rest.AnonymousClientConfig(base)
		all[name].BearerToken, all[name].QPS, all[name].Burst = request.Status.Token, base.QPS, base.Burst
	}
	apitest.Wait(t, 10*time.Second, func(ctx context.Context) error {
		var why []error
		for _, who := range []string{"manager", "broker", "gateway"} {
			why = append(why, all.client(who, nil).List(ctx, &api.GateList{}, client.InNamespace(agents)))
		}
		return errors.Join(why...)
	})
	return all
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// client that bears who's token and asks to be taken for another, if there is one.
func (all installed) client(who string, other *rest.ImpersonationConfig) client.Client {
	cfg := rest.CopyConfig(all[who])
	if other != nil {
		cfg.Impersonate = *other
	}
	return must(client.New(cfg, client.Options{Scheme: sch, Mapper: as(lucas).RESTMapper()}))
}

func among(o client.Object) client.Object {
	o.SetNamespace(agents)
	return o
}

// deeds by which a decision is made or faked, with the one who may do each.
func deeds() map[string]client.Object {
	return map[string]client.Object{
		"approve as lucas":           among(approval("i-lucas", lucas, api.ChannelKubernetes)),
		"approve as alice of Matrix": among(approval("i-alice", "matrix:"+alice, api.ChannelMatrix)),
		"open a gate":                among(gate("i-gate")),
		"submit a plan":              among(plan("i-plan")),
		"ask for a deed":             among(job("i-job")),
	}
}

// Whoever holds a token of Nisse's speaks for itself alone. Were any of them let to impersonate, all that admission holds would be nothing.
func TestNobodyImpersonates(t *testing.T) {
	all := install(t)
	others := map[string]rest.ImpersonationConfig{
		"lucas":                 {UserName: lucas},
		"lucas as a master":     {UserName: lucas, Groups: []string{"system:masters"}},
		"the gateway":           {UserName: gateway},
		"the manager":           {UserName: manager},
		"the broker":            {UserName: broker},
		"the agent":             {UserName: apitest.ServiceAccount(agents, "agent-ops")},
		"a node":                {UserName: "system:node:n", Groups: []string{"system:nodes"}},
		"the gateway by its ID": {UserName: gateway, UID: "uid", Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"nisse-gateway-0"}}},
	}
	for _, who := range []string{"agent", "gateway", "broker", "manager"} {
		for other, as := range others {
			t.Run(who+" as "+other, func(t *testing.T) {
				c := all.client(who, &as)
				for deed, o := range deeds() {
					err := c.Create(t.Context(), o)
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "impersonate") {
						t.Errorf("%s: got %v, want impersonation forbidden", deed, err)
					}
				}
			})
		}
	}
	// The deeds themselves are good: who may do one does it with its own token, and nobody else does.
	for deed, by := range map[string]string{"approve as alice of Matrix": "gateway", "open a gate": "manager", "submit a plan": "broker", "ask for a deed": "broker", "approve as lucas": "nobody"} {
		for _, who := range []string{"agent", "gateway", "broker", "manager"} {
			t.Run(deed+" by "+who, func(t *testing.T) {
				err := all.client(who, nil).Create(t.Context(), deeds()[deed], client.DryRunAll)
				if want := who == by; (err == nil) != want || (err != nil && !apierrors.IsForbidden(err)) {
					t.Errorf("allowed is %v, want %v: %v", err == nil, want, err)
				}
			})
		}
	}
}

// What was asked for and where it stands, for thieves to try their hands at.
type loot struct {
	agent   *api.Agent
	person  *api.Person
	device  *api.Device
	item    *api.WorkItem
	plan    *api.Plan
	gate    *api.Gate
	job     *api.DeviceJob
	said    *api.Approval
	secret  *corev1.Secret
	keys    *corev1.Secret
	objects []client.Object
}

func lay(t *testing.T, prefix string) loot {
	t.Helper()
	install(t)
	l := loot{agent: newAgent(prefix), person: person(prefix), device: device(prefix), item: workItem(prefix, api.SourceKubernetes), plan: plan(prefix), gate: gate(prefix),
		job: job(prefix), said: approval(prefix, lucas, api.ChannelKubernetes),
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agents, Name: prefix}, StringData: map[string]string{"token": "t"}},
		keys:   &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: prefix}, StringData: map[string]string{"key.pem": "k"}}}
	for _, m := range []struct {
		maker string
		o     client.Object
	}{{lucas, l.agent}, {lucas, l.person}, {lucas, l.device}, {lucas, l.item}, {broker, l.plan}, {manager, l.gate}, {broker, l.job}, {lucas, l.said}} {
		if err := as(m.maker).Create(t.Context(), among(m.o)); err != nil {
			t.Fatal(err)
		}
		l.objects = append(l.objects, m.o)
	}
	for _, o := range []client.Object{l.secret, l.keys} {
		if err := as(lucas).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		l.objects = append(l.objects, o)
	}
	return l
}

func fresh(prefix string, o client.Object) client.Object {
	o.SetName(prefix + "-" + fmt.Sprint(time.Now().UnixNano()))
	return among(o)
}
