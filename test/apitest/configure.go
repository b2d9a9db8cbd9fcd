package apitest

import "sigs.k8s.io/controller-runtime/pkg/envtest"

// changes to the server before it starts.
var changes []func(*envtest.Environment)

// Configure changes how the API server will be started, such as what it audits. Call it in TestMain, before Main.
func Configure(change func(*envtest.Environment)) { changes = append(changes, change) }
