//go:build !crashrig

// Package crashpoint marks the persisted boundaries: the places where a crash could lose or double something. In a shipped binary
// a mark does nothing. In one built with -tags crashrig, the crash rig kills the process there.
package crashpoint

// Hit marks a boundary by name: "<what>.before" or "<what>.after" the write that persists it.
func Hit(string) {}
