// Package admission holds the ValidatingAdmissionPolicies that decide who may write what. They are installed by the chart; tests
// and the manager's self-test read them from here. They name the system namespace nisse-system, which the chart replaces.
package admission

import _ "embed"

// YAML of all policies and their bindings.
//
//go:embed policies.yaml
var YAML []byte
