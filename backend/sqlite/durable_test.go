package sqlite

import "testing"

// On macOS a power cut undoes an ordinary sync; only a full one lasts.
func TestSyncsAreFullSyncs(t *testing.T) {
	s := opened(t, newPath(t), Config{})
	for range readers + 3 { // on every connection
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
