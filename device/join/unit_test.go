package join

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sample "nisse.io/nisse/config/device"
)

// Which of root's rights a unit leaves is told by the unit, and join knows either as its own.
func TestUnits(t *testing.T) {
	one, _, _ := strings.Cut(sample.Unit, "\n")
	if !strings.HasPrefix(sample.ElevatedUnit, one+"\n") {
		t.Errorf("join would not know its elevated unit again")
	}
	for _, never := range []string{"CAP_SYS_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_NET_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_TIME", "~"} {
		for _, line := range strings.Split(sample.ElevatedUnit, "\n") {
			if strings.HasPrefix(line, "CapabilityBoundingSet=") && strings.Contains(line, never) {
				t.Errorf("%s leaves %s", line, never)
			}
		}
	}
}

// What systemd itself says of the units, where it is installed: that it knows every word of them, and how much they leave open, of 100.
func TestUnitsBySystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Logf("no systemd to ask: %v", err)
		return
	}
	for name, u := range map[string]struct{ text, most string }{"usual": {sample.Unit, "20"}, "elevated": {sample.ElevatedUnit, "42"}} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), service)
			text := strings.Replace(u.text, program, "/bin/true", 1) // the program need not lie here
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("verify: %v: %s", err, out)
			}
			if out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", "--threshold="+u.most, file).CombinedOutput(); err != nil {
				t.Errorf("security: %v: %s", err, out)
			}
		})
	}
}
