package main

import (
	"bytes"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// roots returns Mozilla's CA certificates as PEM. They come from a Go module rather than from the machine that builds, so that
// two machines make the same image and go.sum says which certificates are trusted.
func roots() ([]byte, error) {
	var buffer bytes.Buffer
	for root := range bundle.Roots() {
		// A constrained root is valid for some names only. A PEM file cannot say which, so it is left out.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&buffer, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("write CA certificate: %w", err)
		}
	}
	return buffer.Bytes(), nil
}
