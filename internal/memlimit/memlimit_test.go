package memlimit

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestSet(t *testing.T) {
	const before = 1 << 40
	was := debug.SetMemoryLimit(before)
	defer debug.SetMemoryLimit(was)
	for _, c := range []struct {
		name, content string
		want          int64
	}{
		{"256Mi", "268435456\n", 268435450 / 10 * 9},
		{"none", "max\n", before},
		{"nonsense", "0\n", before},
		{"empty", "", before},
	} {
		t.Run(c.name, func(t *testing.T) {
			debug.SetMemoryLimit(before)
			file := filepath.Join(t.TempDir(), "memory.max")
			set(file)
			if got := debug.SetMemoryLimit(-1); got != before {
				t.Errorf("no file, and the limit is %d", got)
			}
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			set(file)
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// Who runs it says how much it takes, if they say anything.
func TestSetByEnvironment(t *testing.T) {
	was := debug.SetMemoryLimit(12345 << 20)
	defer debug.SetMemoryLimit(was)
	t.Setenv("GOMEMLIMIT", "12345MiB")
	Set()
	if got := debug.SetMemoryLimit(-1); got != 12345<<20 {
		t.Errorf("got %d", got)
	}
}
