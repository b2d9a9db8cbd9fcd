// Command netpol enforces NetworkPolicies on the one node of the development cluster. The judging is all
// sigs.k8s.io/kube-network-policies; this is a main of our own because of two things:
//
//   - It runs beside the kubelet with a kubeconfig, not as a pod, so that policies hold before the first pod starts.
//   - That library hooks itself in with an nftables queue expression, which some kernels are built without
//     (CONFIG_NFT_QUEUE). It then logs an error and enforces nothing. network.sh therefore feeds the same queue through
//     iptables' NFQUEUE target, and the library's own hook is left to fail or to be a second, equal judge. Kernels that have
//     neither make network.sh fail, loudly.
//
// A third of our own making is in gate.go: the judge needs a pod's address before it can apply a policy to it.
//
// A queue without a reader drops what it is given, so while this program is down pods cannot open new connections.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of this program's identity")
	node := flag.String("node", "", "name of the node that this runs on")
	gateQueue := flag.Uint("gate-queue", 97, "number of the netfilter queue of what pods send, before routing")
	queue := flag.Int("queue", 98, "number of the netfilter queue of what is to be judged")
	metrics := flag.String("metrics-address", "127.0.0.1:10260", "where to serve /metrics")
	flag.Parse()
	if err := run(*kubeconfig, *metrics, uint16(*gateQueue), networkpolicy.Config{NodeName: *node, QueueID: *queue, NFTableName: "nisse-netpol"}); err != nil {
		slog.Error("netpol stopped", "error", err)
		os.Exit(1)
	}
}

func run(kubeconfig, metrics string, gateQueue uint16, config networkpolicy.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	// The nil arguments belong to the admin policies, which are off.
	judge, err := networkpolicy.NewController(client,
		factory.Networking().V1().NetworkPolicies(), factory.Core().V1().Namespaces(), factory.Core().V1().Pods(),
		nil, nil, nil, nil, config)
	if err != nil {
		return fmt.Errorf("set up policy controller: %w", err)
	}
	gate := newGate()
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(gate); err != nil {
		return err
	}
	factory.Start(ctx.Done())

	failed := make(chan error, 3)
	go func() { failed <- gate.run(ctx, gateQueue) }()
	go func() { failed <- judge.Run(ctx) }()
	go func() {
		http.Handle("/metrics", promhttp.Handler())
		failed <- http.ListenAndServe(metrics, nil)
	}()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
