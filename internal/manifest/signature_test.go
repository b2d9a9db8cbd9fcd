package manifest

import (
	"errors"
	"strings"
	"testing"
)

// A rule that demands what nobody can check is no rule that lets anything run, whatever section it stands in.
func TestPersonSignatureRefused(t *testing.T) {
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
			if _, err := m.Check(capability, args); !errors.Is(err, ErrPersonSignature) || !errors.Is(err, ErrNotAllowed) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := m.Check(FSRead, `{"path":"/srv/nisse/a"}`); err != nil {
		t.Errorf("a rule that demands none: %v", err)
	}
	if err := m.LeadsTo(FSRead, "/srv/nisse/a", "/srv/nisse/private/a"); !errors.Is(err, ErrPersonSignature) {
		t.Errorf("a path that leads into such a rule: %v", err)
	}
}
