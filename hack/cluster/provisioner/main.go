// Command provisioner makes the volumes of the development cluster's default StorageClass: a directory on the node for each
// claim, removed with it. It runs on the node itself, beside the kubelet.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// name is what the StorageClass calls this provisioner.
const name = "nisse.io/node-directory"

type directories struct {
	base, node string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of this program's identity")
	base := flag.String("dir", "", "directory that receives the volumes")
	node := flag.String("node", "", "name of the node that this runs on")
	flag.Parse()
	if err := run(*kubeconfig, directories{base: *base, node: *node}); err != nil {
		slog.Error("provisioner stopped", "error", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, volumes directories) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller.NewProvisionController(ctx, client, name, volumes, controller.LeaderElection(false)).Run(ctx)
	return nil
}

// Provision makes the directory writable for every uid: the kubelet does not apply fsGroup to a hostPath volume, and pods of
// this cluster are not root.
func (d directories) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(d.base, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("make volume: %w", err)
	}
	if err := os.Chmod(path, 0o777); err != nil { // MkdirAll obeys the umask
		return nil, controller.ProvisioningFinished, fmt.Errorf("open volume to every uid: %w", err)
	}
	onThisNode := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{d.node}}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: options.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{onThisNode}}},
			}},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the directory, and nothing that is not directly below the base: the path is read from an API object.
func (d directories) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.HostPath == nil || filepath.Dir(filepath.Clean(volume.Spec.HostPath.Path)) != filepath.Clean(d.base) {
		return fmt.Errorf("volume %s is not a directory below %s; remove it by hand", volume.Name, d.base)
	}
	return os.RemoveAll(volume.Spec.HostPath.Path)
}
