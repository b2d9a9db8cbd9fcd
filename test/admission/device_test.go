package admission

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A request leaves its machine by TLS alone.
func TestURLsOfDevices(t *testing.T) {
	for url, ok := range map[string]bool{
		"https://10.8.0.7:7443": true, "https://[fd7a::7]:7443": true, "https://web1.example.org:7443": true, "https://web1": true,
		"http://127.0.0.1:7443": true, "http://127.8.0.7": true, "http://[::1]:7443": true, "http://localhost:7443": true,
		"http://10.8.0.7:7443": false, "http://web1:7443": false, "http://[fd7a::7]:7443": false, "http://0.0.0.0:7443": false,
		"http://127.0.0.1.example.org": false, "http://localhost.example.org:7443": false, "http://127.evil.example.org": false,
		"HTTP://10.8.0.7:7443": false, "ftp://127.0.0.1": false, "https://web1:7443/path": false, "https://me@web1:7443": false, "https://": false, "": false,
	} {
		d := device("url-device")
		d.Spec.URL = url
		if err := as(lucas).Create(t.Context(), d, client.DryRunAll); ok && err != nil || !ok && !refused(err) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// A Device may wait for its machine's key, and takes no half one.
func TestKeysOfDevices(t *testing.T) {
	for key, ok := range map[string]bool{"": true, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=": true, "AAAA": false, "-": false} {
		d := device("key-device")
		d.Spec.PublicKey = key
		if err := as(lucas).Create(t.Context(), d, client.DryRunAll); ok && err != nil || !ok && !refused(err) {
			t.Errorf("%q: %v", key, err)
		}
	}
}
