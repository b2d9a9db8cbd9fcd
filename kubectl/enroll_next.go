package kubectl

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"

	"nisse.io/nisse/api/v1alpha1"
)

// next is what the person does now.
func (e *enrolment) next(d *v1alpha1.Device, all []*v1alpha1.DeviceManifest) {
	elevated := slices.ContainsFunc(all, func(m *v1alpha1.DeviceManifest) bool { return m.Spec.Privilege == v1alpha1.PrivilegeElevated })
	if d.Spec.PublicKey == "" {
		fmt.Fprintf(e.out, `
Run on the machine, as root, with nisse-device copied there:

    ./%s

It makes the machine's own key, starts the device on that address alone, and prints the key's public half. Bring that back here:

    kubectl nisse enroll %s -n %s --device-key KEY

Until then the cluster sends the machine nothing.
`, e.join(d, elevated), e.name, e.namespace)
	}
	for _, m := range all {
		if m.Spec.Signature != "" {
			continue
		}
		fmt.Fprintf(e.out, `
%[1]s is not signed, so that nothing runs by it. Where the root key lies:

    kubectl -n %[2]s get devicemanifest %[1]s -o yaml | kubectl nisse manifest sign -f - --key root.key | kubectl apply --server-side --force-conflicts -f -
`, m.Name, e.namespace)
	}
	if d.Spec.PublicKey == "" {
		return
	}
	if slices.Contains(e.made, v1alpha1.PrivilegeElevated) {
		fmt.Fprintf(e.out, `
What its Elevated manifest lists for root is refused until the device is root. If it was joined without --elevated, run on the machine, as root:

    %s
`, e.join(d, true))
	}
	fmt.Fprintf(e.out, "\nIt is enrolled. Whether it answers:\n\n    kubectl -n %s get device %s -o wide\n", e.namespace, e.name)
}

// join is what to run on the machine.
func (e *enrolment) join(d *v1alpha1.Device, elevated bool) string {
	listen := ""
	if u, err := url.Parse(d.Spec.URL); err == nil {
		listen = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "7443"))
	}
	line := fmt.Sprintf("nisse-device join %s --root-key %s --listen %s", e.name, d.Spec.RootKey, listen)
	if elevated {
		line += " --elevated"
	}
	if e.namespace != "nisse" {
		line += " --namespace " + e.namespace
	}
	return line
}
