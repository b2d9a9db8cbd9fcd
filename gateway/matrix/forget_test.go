package matrix_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // the homeserver's own database

	"nisse.io/nisse/internal/testrig/homeserver"
)

// forget restarts the homeserver without its memory of transaction IDs. Dendrite keeps that in memory only; from Synapse's database
// it is taken, as happens there after an hour and with another login.
func forget(t *testing.T, hs *homeserver.Server) {
	t.Helper()
	hs.Stop(t)
	if hs.Implementation == "synapse" {
		files, err := filepath.Glob(filepath.Join(hs.Dir, "*.db"))
		if err != nil || len(files) != 1 {
			t.Fatalf("the homeserver's database: %v, %v", files, err)
		}
		db, err := sql.Open("sqlite", files[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"event_txn_id_device_id"} {
			if _, err := db.Exec("DELETE FROM " + table); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	hs.Restart(t)
}
