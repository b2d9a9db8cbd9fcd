//go:build deps

// Package deps keeps the settled libraries in go.mod while the rooms that use them are being built.
package deps

import (
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-containerregistry/pkg/v1"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/gowebpki/jcs"
	_ "github.com/modelcontextprotocol/go-sdk/mcp"
	_ "github.com/oklog/ulid/v2"
	_ "github.com/openai/openai-go/v3"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/santhosh-tekuri/jsonschema/v6"
	_ "github.com/secure-systems-lab/go-securesystemslib/dsse"
	_ "go.mau.fi/util/dbutil"
	_ "golang.org/x/mod/sumdb/note"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/time/rate"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/record"
	_ "maunium.net/go/mautrix"
	_ "maunium.net/go/mautrix/crypto/cryptohelper"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/yaml"
)
