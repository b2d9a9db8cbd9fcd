package stack

import (
	"bytes"

	"nisse.io/nisse/kubectl"
)

// Kubectl runs the plugin as the person, and returns what it says.
func (s *Stack) Kubectl(args ...string) (string, error) {
	s.T.Helper()
	var out bytes.Buffer
	c := kubectl.New("test")
	c.SetArgs(append(args, "--kubeconfig", s.kubeconfig("person", Kubernetes, "system:masters"), "-n", s.Namespace))
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.ExecuteContext(s.T.Context())
	return out.String(), err
}
