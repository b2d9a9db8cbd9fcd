package manifest

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Whatever section a rule stands in, the verdict says that it demands a Person's own signature: who runs the call goes by that alone.
func TestPersonSignatureDemanded(t *testing.T) {
	text := strings.ReplaceAll(strings.ReplaceAll(machineSample(), ", signature: Person", ""), "approval: Required", "approval: Required, signature: Person")
	text = strings.Replace(text, "approval: [\""+publicKey(2)+"\"]", "approval: [\""+publicKey(2)+"\"]\n  persons: {ada: [\""+publicKey(3)+"\"]}", 1)
	m := parse(t, strings.ReplaceAll(text, ", signature: Person\n", "\n  signature: Person\n")) // rules over several lines
	for capability, args := range map[string]string{
		FSWrite:        `{"content":"x","path":"/srv/nisse/report.txt"}`,
		Exec:           `{"argv":["/usr/bin/systemctl","restart","nginx"]}`,
		GitCommit:      `{"files":["a"],"message":"x","path":"/srv/src/tool"}`,
		GitClone:       `{"path":"/srv/src/new","url":"https://git.example/team/new.git"}`,
		PkgInstall:     `{"names":["htop"]}`,
		DockerExec:     `{"argv":["/usr/sbin/nginx","-s","reload"],"container":"web-1"}`,
		DisplayCapture: `{}`,
		ClipboardWrite: `{"content":"x"}`,
	} {
		t.Run(capability, func(t *testing.T) {
			if v, err := m.Check(capability, args); err != nil || v.Signature != PersonSignature || v.Approval != Required {
				t.Errorf("got %+v, %v", v.Rule, err)
			}
		})
	}
	if v, err := m.Check(FSRead, `{"path":"/srv/nisse/a"}`); err != nil || v.Signature != "" {
		t.Errorf("a rule that demands none: %+v, %v", v.Rule, err)
	}
	if err := m.LeadsTo(FSRead, "/srv/nisse/a", "/srv/nisse/private/a"); !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "own signature") {
		t.Errorf("a path that leads into such a rule: %v", err)
	}
	if err := m.LeadsTo(FSRead, "/srv/nisse/private/b", "/srv/nisse/private/a"); err != nil {
		t.Errorf("a path that leads from one such rule to another: %v", err)
	}
	want := map[string][]ed25519.PublicKey{"ada": trusted([]string{publicKey(3)})}
	if diff := cmp.Diff(want, m.Keys.PersonKeys()); diff != "" {
		t.Errorf("keys of Persons (-want +got):\n%s", diff)
	}
}
