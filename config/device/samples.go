// Package device holds what a machine starts with, for programs that put it in place.
package device

import _ "embed" // the files beside this one

// Manifest that a device starts with; device, keys and expiresAt are to be filled in.
//
//go:embed manifest.yaml
var Manifest []byte

// Unit of systemd, as a template: see package device/join.
//
//go:embed nisse-device.service
var Unit string
