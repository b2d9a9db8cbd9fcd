// Package docs compares what the documents say with the source.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

func reference(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section from its heading to the next heading of that level or above.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/reference.md has no heading %q", heading)
	}
	level := strings.IndexFunc(heading, func(r rune) bool { return r != '#' })
	if end := regexp.MustCompile(`(?m)^#{1,` + strconv.Itoa(level) + `} `).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// sources calls visit with every node of every Go file below the folders that is no test.
func sources(t *testing.T, folders []string, visit func(file string, n ast.Node)) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				visit(path, n)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// A flag that is defined in a program is in that program's table.
func TestEveryFlagIsNamed(t *testing.T) {
	doc := reference(t)
	name, definer := regexp.MustCompile(`^[a-z][a-z0-9-]*$`), regexp.MustCompile(`^(String|Bool|Int|Int64|Uint|Uint64|Float64|Duration|Func|BoolFunc|Text)?(Var)?$`)
	for program, heading := range map[string]string{"manager": "### manager", "gateway": "### gateway", "broker": "### broker",
		"agentruntime": "### agentruntime", "keys": "### keys", "nisse-device": "## nisse-device"} {
		t.Run(program, func(t *testing.T) {
			part, found := section(t, doc, heading), 0
			sources(t, []string{"cmd/" + program}, func(_ string, n ast.Node) {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !definer.MatchString(f.Sel.Name) || len(call.Args) < 3 {
					return
				}
				for _, arg := range call.Args[:2] {
					if s, ok := text(arg); ok && name.MatchString(s) {
						found++
						if !strings.Contains(part, "| `--"+s+"` |") {
							t.Errorf("docs/reference.md, %q, has no row for --%s", heading, s)
						}
						return
					}
				}
			})
			if found == 0 {
				t.Errorf("no flag was found in cmd/%s: does it define them in another way now?", program)
			}
		})
	}
	programs, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if !strings.Contains(doc, "# "+p.Name()+"\n") {
			t.Errorf("docs/reference.md says nothing about cmd/%s", p.Name())
		}
	}
}

// Metrics are in the table, and the table has no others.
func TestEveryMetricIsNamed(t *testing.T) {
	metric := regexp.MustCompile("^nisse_(manager|gateway|broker|runtime|device)_[a-z_]+$")
	var inSource, inDoc []string
	sources(t, []string{"agentruntime", "broker", "cmd", "controllers", "device", "gateway", "internal"}, func(_ string, n ast.Node) {
		if e, ok := n.(ast.Expr); ok {
			if s, ok := text(e); ok && metric.MatchString(s) {
				inSource = append(inSource, s)
			}
		}
	})
	for _, m := range regexp.MustCompile("\\| `(nisse_[a-z_]+)` \\|").FindAllStringSubmatch(section(t, reference(t), "## Metrics"), -1) {
		inDoc = append(inDoc, m[1])
	}
	if len(inSource) == 0 {
		t.Fatal("no metric was found in the source")
	}
	for _, m := range inSource {
		if !slices.Contains(inDoc, m) {
			t.Errorf("docs/reference.md has no row for the metric %s", m)
		}
	}
	for _, m := range inDoc {
		if !slices.Contains(inSource, m) {
			t.Errorf("docs/reference.md has the metric %s, which does not exist", m)
		}
	}
}

// Reasons, in one word, that people and metrics see, by the tables that they belong in.
func TestEveryReasonIsNamed(t *testing.T) {
	doc := reference(t)
	for name, test := range map[string]struct {
		headings []string
		folders  []string
		find     func(n ast.Node) []string
	}{
		"conditions and approvals": {[]string{"## Conditions", "## Why an approval does not count"}, []string{"api", "controllers"}, constants("", "Reason")},
		"halts":                    {[]string{"## Conditions", "## Why a call does not run"}, []string{"api"}, constants("HaltReason", "")},
		"the broker's judgement":   {[]string{"## Why a call does not run"}, []string{"broker/judge"}, constants("", "")},
		"the broker's refusals":    {[]string{"## Why a call does not run"}, []string{"broker"}, arguments(0, "refuse", "refused", "refusal", "bad")},
		"the doors' problems":      {[]string{"## The doors"}, []string{"broker", "gateway", "internal/podauth"}, arguments(2, "Problem")},
		"the wire":                 {[]string{"## The wire to a device"}, []string{"device/wire"}, constants("Reason", "")},
		"events":                   {[]string{"## Events"}, []string{"broker", "controllers"}, arguments(3, "Eventf")},
	} {
		t.Run(name, func(t *testing.T) {
			var part strings.Builder
			for _, h := range test.headings {
				part.WriteString(section(t, doc, h))
			}
			found := 0
			sources(t, test.folders, func(file string, n ast.Node) {
				for _, reason := range test.find(n) {
					found++
					if !strings.Contains(part.String(), "`"+reason+"`") {
						t.Errorf("docs/reference.md, %q, does not tell what %s means (%s)", test.headings, reason, strings.TrimPrefix(file, root+"/"))
					}
				}
			})
			if found == 0 {
				t.Error("no reason was found in the source")
			}
		})
	}
}

var word = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// constants of a type ("" is none) whose names begin so.
func constants(kind, prefix string) func(ast.Node) []string {
	return func(n ast.Node) (all []string) {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return nil
		}
		if id, _ := v.Type.(*ast.Ident); (id == nil) != (kind == "") || id != nil && id.Name != kind {
			return nil
		}
		for i, name := range v.Names {
			if i < len(v.Values) && strings.HasPrefix(name.Name, prefix) {
				if s, ok := text(v.Values[i]); ok && word.MatchString(s) {
					all = append(all, s)
				}
			}
		}
		return all
	}
}

// arguments of calls of functions of these names that are literal words.
func arguments(at int, names ...string) func(ast.Node) []string {
	return func(n ast.Node) []string {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) <= at {
			return nil
		}
		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if s, ok := text(call.Args[at]); ok && slices.Contains(names, name) && word.MatchString(s) {
			return []string{s}
		}
		return nil
	}
}

// A value of the chart is in the table, by its path.
func TestEveryChartValueIsNamed(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "charts", "nisse", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(b, &values); err != nil {
		t.Fatal(err)
	}
	part := section(t, reference(t), "## Chart values")
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if m, ok := v.(map[string]any); ok && len(m) > 0 && !strings.HasSuffix(path, ".resources") {
			for k, v := range m {
				walk(strings.TrimPrefix(path+"."+k, "."), v)
			}
			return
		}
		if !strings.Contains(part, "`"+path+"`") {
			t.Errorf("docs/reference.md has no row for the value %s", path)
		}
	}
	walk("", values)
}
