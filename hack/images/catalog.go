package main

import "fmt"

// Image says what one image holds. The product ships two, so that a pod that runs an agent's turns does not even carry the
// binaries that use keys.
type Image struct {
	Name string
	// Binaries maps the name in /usr/local/bin to what is compiled for it.
	Binaries []Binary
	// Entrypoint is the binary that runs when a pod names no command; empty leaves that to the pod.
	Entrypoint string
	// Root keeps uid 0. Only images of the development cluster need that; the product's never do.
	Root bool
	// Bare leaves out CA certificates, /etc/passwd and /tmp, for an image that is one binary and nothing else.
	Bare bool
}

// Binary is one static executable: either a package to compile, or a file that was built before.
type Binary struct {
	Name    string
	Package string
	File    string
}

// product is what Nisse ships.
var product = []Image{
	{
		Name: "nisse",
		Binaries: []Binary{
			{Name: "manager", Package: "./cmd/manager"},
			{Name: "gateway", Package: "./cmd/gateway"},
			{Name: "broker", Package: "./cmd/broker"},
			{Name: "keys", Package: "./cmd/keys"},
		},
	},
	{
		Name:       "nisse-agent",
		Binaries:   []Binary{{Name: "agentruntime", Package: "./cmd/agentruntime"}},
		Entrypoint: "agentruntime",
	},
}

// choose returns the product images with these names, all of them when none is named.
func choose(names []string) ([]Image, error) {
	if len(names) == 0 {
		return product, nil
	}
	var chosen []Image
	for _, name := range names {
		found := false
		for _, image := range product {
			if image.Name == name {
				chosen, found = append(chosen, image), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no image is called %q; there are nisse and nisse-agent", name)
		}
	}
	return chosen, nil
}
