// Package device holds what a machine starts with, for programs that put it in place.
package device

import _ "embed" // the files beside this one

// Manifest that a device starts with; device, keys and expiresAt are to be filled in.
//
//go:embed manifest.yaml
var Manifest []byte

// ElevatedManifest that a device starts with which serves agents of privilege Elevated; the same is to be filled in.
//
//go:embed elevated.yaml
var ElevatedManifest []byte

// Unit of systemd: see package device/join.
//
//go:embed nisse-device.service
var Unit string

// ElevatedUnit of systemd, for a device that is root. Its first line is Unit's, by which join knows either as its own.
//
//go:embed nisse-device-elevated.service
var ElevatedUnit string
