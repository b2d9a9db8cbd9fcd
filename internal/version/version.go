// Package version tells which release a binary is.
package version

// Version is set by the linker: -X nisse.io/nisse/internal/version.Version=v.
var Version = "dev"
