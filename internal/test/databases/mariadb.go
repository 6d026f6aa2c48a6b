//go:build unix

package databases

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// MariaDBServer is a MariaDB server with its default settings, but without its network.
type MariaDBServer struct {
	socket string
	count  atomic.Int64
}

// MariaDB returns a server. The tests of the binary share it if their TestMain calls [Main]; otherwise it is
// the test's own.
func MariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	return shared(t, requireMariaDB, NewMariaDB)
}

// NewMariaDB starts a server for one test alone.
func NewMariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	server, install := required.Program(t, requireMariaDB, "mariadbd", "/usr/sbin"), required.Program(t, requireMariaDB, "mariadb-install-db", "/usr/bin")
	dir := newDirectory(t)
	data, socket := filepath.Join(dir, "data"), filepath.Join(dir, "socket")
	cmd := exec.Command(install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	asNobody(cmd, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", install, err, out)
	}
	startServer(t, dir, exec.Command(server, "--no-defaults", "--datadir="+data, "--socket="+socket, "--pid-file="+filepath.Join(dir, "pid"),
		"--skip-networking", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M", "--max-connections=300"))
	s := &MariaDBServer{socket: socket}
	s.await(t)
	return s
}

// await returns when the server answers.
func (s *MariaDBServer) await(t testing.TB) {
	t.Helper()
	db, err := sql.Open("mysql", s.dsn("mysql"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for limit := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		if _, err = os.Stat(s.socket); err == nil { // without the socket the driver would write to standard error
			err = db.Ping()
		}
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("MariaDB does not answer: %v", err)
		}
	}
}

func (s *MariaDBServer) dsn(database string) string {
	return fmt.Sprintf("root@unix(%s)/%s", s.socket, database)
}

// Database creates an empty database and returns its data source name for github.com/go-sql-driver/mysql.
func (s *MariaDBServer) Database(t testing.TB) string {
	t.Helper()
	db, err := sql.Open("mysql", s.dsn("mysql"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	name := fmt.Sprintf("test%d", s.count.Add(1))
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return s.dsn(name)
}
