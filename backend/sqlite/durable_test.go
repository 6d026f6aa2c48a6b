package sqlite

import "testing"

// On macOS a power cut undoes what was only synced as elsewhere.
func TestSyncsAreFullSyncs(t *testing.T) {
	s := opened(t, newPath(t), Config{})
	for range readers + 3 { // on whichever connection
		conn, err := s.file.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var full int
		if err := conn.QueryRowContext(t.Context(), "PRAGMA fullfsync").Scan(&full); err != nil || full != 1 {
			t.Fatal(full, err)
		}
	}
}
