package faults

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nisse.io/nisse/test/apitest"
)

// The list of cases names tests that exist.
func TestCasesHaveTheirTests(t *testing.T) {
	text, err := os.ReadFile(apitest.Path("docs", "development", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9/-]+) (Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, n := range named {
		files, err := filepath.Glob(apitest.Path(n[1], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "func "+n[2]+"(")
		}
		if !found {
			t.Errorf("package %s has no %s", n[1], n[2])
		}
	}
}
