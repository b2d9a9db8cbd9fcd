package apitest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Install applies every object in a YAML file, or in the YAML files of a directory, such as Path("config", "admission"). Each change
// sees an object before it is applied.
func Install(t testing.TB, admin client.Client, path string, changes ...func(*unstructured.Unstructured)) {
	t.Helper()
	files := []string{path}
	if info, err := os.Stat(path); err != nil {
		t.Fatal(err)
	} else if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil || len(files) == 0 {
			t.Fatalf("no *.yaml in %s (%v)", path, err)
		}
	}
	slices.Sort(files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range objects(t, f, text) {
			for _, change := range changes {
				change(u)
			}
			if err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("apitest"), client.ForceOwnership); err != nil {
				t.Fatalf("%s: %s %s: %v", f, u.GetKind(), u.GetName(), err)
			}
		}
	}
}

func objects(t testing.TB, file string, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		u := &unstructured.Unstructured{}
		switch err := d.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%s: %v", file, err)
		case u.GetKind() != "" && u.GetKind() != "Kustomization":
			all = append(all, u)
		}
	}
}
