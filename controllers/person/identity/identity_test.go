package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
)

func person(name, matrix string, kubernetes ...string) v1alpha1.Person {
	return v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: matrix, Kubernetes: kubernetes}}}
}

func TestResolve(t *testing.T) {
	people := []v1alpha1.Person{
		person("lucas", "@lucas:example.org", "lucas", "lucas@example.org"),
		person("maria", "@maria:example.org", "maria"),
		person("twin-b", "@twin:example.org"),
		person("twin-a", "@twin:example.org"),
		person("odd", "", "matrix:@maria:example.org", "system:serviceaccount:nisse:agent-ops"),
		person("empty", ""),
	}
	for _, tc := range []struct {
		name, approver string
		want           []string
	}{
		{"by Matrix ID", "matrix:@lucas:example.org", []string{"lucas"}},
		{"by username", "lucas", []string{"lucas"}},
		{"by second username", "lucas@example.org", []string{"lucas"}},
		{"a Matrix ID without its prefix is nobody", "@lucas:example.org", nil},
		{"a username with the prefix is nobody", "matrix:lucas", nil},
		{"another server is another person", "matrix:@lucas:evil.example", nil},
		{"case counts", "matrix:@Lucas:example.org", nil},
		{"look-alike letters count", "matrix:@lucаs:example.org", nil},
		{"blanks count", "lucas ", nil},
		{"two Persons", "matrix:@twin:example.org", []string{"twin-a", "twin-b"}},
		{"a Kubernetes name cannot be a chat identity", "matrix:@maria:example.org", []string{"maria"}},
		{"a service account is not a person", "system:serviceaccount:nisse:agent-ops", nil},
		{"empty", "", nil},
		{"the prefix alone", "matrix:", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Resolve(people, tc.approver)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestShared(t *testing.T) {
	a := person("a", "@x:example.org", "root", "a")
	b := person("b", "@x:example.org", "b")
	c := person("c", "@c:example.org", "root")
	d := person("d", "@x:example.org", "d")
	people := []v1alpha1.Person{d, c, b, a}
	for _, tc := range []struct {
		of   v1alpha1.Person
		want []Claim
	}{
		{a, []Claim{{"matrix:@x:example.org", []string{"b", "d"}}, {"root", []string{"c"}}}},
		{b, []Claim{{"matrix:@x:example.org", []string{"a", "d"}}}},
		{c, []Claim{{"root", []string{"a"}}}},
		{person("e", "@e:example.org"), nil},
	} {
		t.Run(tc.of.Name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Shared(people, &tc.of)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
