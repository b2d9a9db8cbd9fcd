package pin

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"
)

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

// speak with a server over a pipe: what the client says of it, and what the server got to read.
func speak(t *testing.T, server, client *tls.Config) (read string, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(tls.Server(c, server)) // an end in the middle is what is looked for
		got <- string(all)
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		_, err = c.Write([]byte("secret"))
		_ = c.Close() // the server may be gone
	}
	return <-got, err
}

func TestOnlyTheKeyCounts(t *testing.T) {
	mine, err := Server(key(1), "web1")
	if err != nil {
		t.Fatal(err)
	}
	other, err := Server(key(2), "web1")
	if err != nil {
		t.Fatal(err)
	}
	renamed, err := Server(key(1), "another name")
	if err != nil {
		t.Fatal(err)
	}
	// The device's certificate is no secret; its key is.
	stolen := &tls.Config{Certificates: []tls.Certificate{{Certificate: mine.Certificates[0].Certificate, PrivateKey: key(2)}}}
	old := mine.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, ec.Public(), ec)
	if err != nil {
		t.Fatal(err)
	}
	// A middleman's own leaf, with the device's certificate behind it.
	chained := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der, mine.Certificates[0].Certificate[0]}, PrivateKey: ec}}}
	for _, c := range []struct {
		name   string
		server *tls.Config
		ok     bool
		is     error
	}{
		{name: "the device", server: mine, ok: true},
		{name: "the device, whatever name it bears", server: renamed, ok: true},
		{name: "another key", server: other, is: ErrOtherKey},
		{name: "a key of another kind, the device's certificate in its chain", server: chained, is: ErrOtherKey},
		{name: "the device's certificate without its key", server: stolen},
		{name: "the device by TLS 1.2", server: old},
	} {
		t.Run(c.name, func(t *testing.T) {
			read, err := speak(t, c.server, Client(public(1)))
			if c.ok {
				if err != nil || read != "secret" {
					t.Errorf("got %v, and it read %q", err, read)
				}
				return
			}
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v", err)
			}
			if read != "" {
				t.Errorf("it read %q", read)
			}
		})
	}
}

// A client that would take less gets no connection either.
func TestTheDeviceSpeaksTLS13Alone(t *testing.T) {
	mine, err := Server(key(1), "web1")
	if err != nil {
		t.Fatal(err)
	}
	client := Client(public(1))
	client.MinVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if read, err := speak(t, mine, client); err == nil || read != "" {
		t.Errorf("got %v, and it read %q", err, read)
	}
}

// The certificate has no chance and no time in it, so that whoever notes its fingerprint finds it again.
func TestTheCertificateStaysTheSame(t *testing.T) {
	a, err := Server(key(1), "web1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Server(key(1), "web1")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Certificates[0].Certificate[0], b.Certificates[0].Certificate[0]) {
		t.Error("it differs")
	}
}
