// Package gateway puts the room together that faces people: conversations, the worker behind them, gates, and the door for pods.
package gateway

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/conversation"
	"nisse.io/nisse/gateway/gates"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/mailbox"
	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/progress"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/gateway/worker"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
	"nisse.io/nisse/internal/rates"
)

// Options of the gateway.
type Options struct {
	// Namespace of agents, their pods and all custom resources.
	Namespace   string
	Homeserver  string
	Approvals   string
	Credentials matrix.Credentials
	// Bind is the address of the door for pods.
	Bind  string
	Store *store.Store
	Log   *slog.Logger
	// Timing may be left empty.
	Timing matrix.Timing
}

// Setup adds all of the gateway to a manager whose cache holds the objects of the namespace.
func Setup(mgr ctrl.Manager, o Options) error {
	keeper := &conversation.Keeper{
		Objects: mgr.GetClient(), Store: o.Store, Namespace: o.Namespace, Homeserver: o.Homeserver, Approvals: o.Approvals,
		Credentials: o.Credentials, Log: o.Log, Timing: o.Timing, Changed: make(chan event.TypedGenericEvent[*v1alpha1.Agent]),
	}
	one := controller.Options{SkipNameValidation: ptr(true)} // a process may hold two gateways in tests
	err := builder.ControllerManagedBy(mgr).Named("conversation").For(&v1alpha1.Agent{}).WithOptions(one).
		WatchesRawSource(source.Channel(keeper.Changed, &handler.TypedEnqueueRequestForObject[*v1alpha1.Agent]{})).Complete(keeper)
	if err != nil {
		return err
	}
	shower := &gates.Reconciler{
		Objects: mgr.GetClient(), Live: mgr.GetAPIReader(), Store: o.Store, Namespace: o.Namespace, Dropped: keeper.Look, Log: o.Log,
	}
	err = builder.ControllerManagedBy(mgr).Named("gates").For(&v1alpha1.Gate{}).WithOptions(one).Complete(shower)
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(mgr).Named("refusals").For(&v1alpha1.Approval{}).WithOptions(one).
		Complete(&gates.Refusals{Objects: mgr.GetClient(), Store: o.Store, Log: o.Log})
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(mgr).Named("items").For(&v1alpha1.WorkItem{}).WithOptions(one).
		Complete(&items.Reconciler{Objects: mgr.GetClient(), Store: o.Store, Now: time.Now, Log: o.Log})
	if err != nil {
		return err
	}
	// Routing looks at people; their informer must be there before the first message is.
	if _, err := mgr.GetCache().GetInformer(context.Background(), &v1alpha1.Person{}); err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	auth := podauth.New(kube, o.Namespace, doors.AudienceGateway)
	door := &mailbox.Door{
		Objects: mgr.GetClient(), Live: mgr.GetAPIReader(), Store: o.Store, Namespace: o.Namespace, Log: o.Log, Watch: auth.Watch,
		Requests: rates.New(time.Now),
	}
	work := &worker.Worker{Objects: mgr.GetClient(), Live: mgr.GetAPIReader(), Store: o.Store, Namespace: o.Namespace, Log: o.Log}
	shown := &progress.Keeper{Store: o.Store, Log: o.Log, Every: progress.Every}
	for _, run := range []manager.RunnableFunc{
		keeper.Run, shower.Run, work.Run, shown.Run,
		func(ctx context.Context) error {
			o.Store.Housekeeping(ctx, o.Log)
			return nil
		},
		func(ctx context.Context) error { return serve(ctx, o.Bind, auth.Require(door.Handler())) },
	} {
		if err := mgr.Add(run); err != nil {
			return err
		}
	}
	return nil
}

func ptr[T any](v T) *T { return &v }
