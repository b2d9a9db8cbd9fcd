// Package pin is the TLS under the wire: a device shows a certificate that it made of its own key, and who calls it looks for that key and
// for nothing else. No authority vouches for anybody, and no name or date in a certificate counts.
package pin

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"nisse.io/nisse/internal/dsse"
)

// ErrOtherKey is wrapped when what answers holds another key than the one that is pinned.
var ErrOtherKey = errors.New("another key than the device's")

// protocols that are spoken inside. Not HTTP/2: there one connection carries many requests, and a device bounds what one address may have
// open by counting connections.
var protocols = []string{"http/1.1"}

// Server shows a certificate of a device's key. It is the same each time, and without an end: nothing is to be renewed on a machine.
func Server(key ed25519.PrivateKey, device string) (*tls.Config, error) {
	// 99991231235959Z is RFC 5280's way to say that there is no end; the beginning is before any clock that is wrong.
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: device},
		NotBefore: time.Unix(0, 0).UTC(), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	der, err := x509.CreateCertificate(nil, of, of, key.Public(), key) // ed25519 signs without chance
	if err != nil {
		return nil, fmt.Errorf("certificate of the device's key: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, nil
}

// Client takes one key, and proof that it is held: TLS 1.3 has the server sign the handshake with the key of its certificate. Until both
// are there nothing of a request has been written.
func Client(key ed25519.PublicKey) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protocols,
		// Not the check of chain and name, which would ask an authority; the check of the key is VerifyConnection's, on every connection.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return fmt.Errorf("%w: no certificate", ErrOtherKey)
			}
			got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			switch {
			case !ok:
				return fmt.Errorf("%w: the certificate's is %s", ErrOtherKey, s.PeerCertificates[0].PublicKeyAlgorithm)
			case !got.Equal(key):
				return fmt.Errorf("%w: %s", ErrOtherKey, dsse.EncodeKey(got))
			}
			return nil
		},
	}
}
