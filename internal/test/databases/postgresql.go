//go:build unix

package databases

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// The names of the servers in LEASEKEEPER_TEST_REQUIRE.
const (
	requirePostgreSQL = "postgres"
	requirePgBouncer  = "pgbouncer"
)

// Superuser has all privileges in a [PostgreSQLServer], without a password.
const Superuser = "leasekeeper"

// PostgreSQLServer is a PostgreSQL server with durable writes and its default settings.
type PostgreSQLServer struct {
	program, data, dir string
	port               int
	count              atomic.Int64
}

// PostgreSQL returns a server. The tests of the binary share it if their TestMain calls [Main]; otherwise it is
// the test's own.
func PostgreSQL(t testing.TB) *PostgreSQLServer {
	t.Helper()
	return shared(t, requirePostgreSQL, NewPostgreSQL)
}

// NewPostgreSQL starts a server for one test alone, which may crash it.
func NewPostgreSQL(t testing.TB) *PostgreSQLServer {
	t.Helper()
	s := &PostgreSQLServer{program: postgreSQLProgram(t, "postgres"), dir: newDirectory(t), port: freePort(t)}
	s.data = filepath.Join(s.dir, "data")
	install := exec.Command(postgreSQLProgram(t, "initdb"), "--pgdata="+s.data, "--username="+Superuser, "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	asNobody(install, s.dir)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", install.Path, err, out)
	}
	s.Start(t)
	return s
}

// postgreSQLProgram finds a program of the newest installed version.
func postgreSQLProgram(t testing.TB, name string) string {
	t.Helper()
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // Debian
	more, _ := filepath.Glob("/usr/pgsql-*/bin")             // Red Hat
	folders = append(folders, more...)
	slices.Reverse(folders)
	return required.Program(t, requirePostgreSQL, name, folders...)
}

// freePort returns a port on which no process listened a moment ago.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Start starts the server again after Crash, on the same port.
func (s *PostgreSQLServer) Start(t testing.TB) {
	t.Helper()
	startServer(t, s.dir, exec.Command(s.program, "-D", s.data, "-p", strconv.Itoa(s.port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300", "-c", "shared_buffers=16MB"))
	await(t, "PostgreSQL", s.URL("postgres"))
}

// Crash ends the server and all its connections at once, as if its machine had failed.
func (s *PostgreSQLServer) Crash(t testing.TB) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGQUIT)
	}
	if err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(startLimit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(s.data, "postmaster.pid")); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("PostgreSQL did not end")
		}
	}
}

// Addr returns the address of the server.
func (s *PostgreSQLServer) Addr() string { return address(s.port) }

// URL returns the URL of a database, for the superuser.
func (s *PostgreSQLServer) URL(database string) string {
	return postgreSQLURL(s.port, Superuser, database)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func postgreSQLURL(port int, user, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: address(port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Database creates an empty database and returns its URL.
func (s *PostgreSQLServer) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.count.Add(1))
	s.Run(t, s.URL("postgres"), "CREATE DATABASE "+name)
	return s.URL(name)
}

// Run runs statements in the database of a URL.
func (s *PostgreSQLServer) Run(t testing.TB, database string, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// await returns when a server answers at the URL of a database.
func await(t testing.TB, what, database string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, database)
		if err == nil {
			_ = conn.Close(ctx)
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s does not answer: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// PgBouncer is a pgbouncer in transaction mode in front of a [PostgreSQLServer].
type PgBouncer struct{ port int }

// NewPgBouncer starts a pgbouncer, for all databases and for these users besides the superuser.
func (s *PostgreSQLServer) NewPgBouncer(t testing.TB, users ...string) *PgBouncer {
	t.Helper()
	binary := required.Program(t, requirePgBouncer, "pgbouncer", "/usr/sbin")
	b, dir := &PgBouncer{port: freePort(t)}, newDirectory(t)
	known := ""
	for _, user := range append(users, Superuser) {
		known += fmt.Sprintf("%q \"\"\n", user)
	}
	settings := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
`, s.port, b.port, filepath.Join(dir, "users"))
	for name, text := range map[string]string{"users": known, "pgbouncer.ini": settings} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	startServer(t, dir, exec.Command(binary, filepath.Join(dir, "pgbouncer.ini")))
	await(t, "pgbouncer", b.Before(t, s.URL("postgres")))
	return b
}

// Before returns the URL of a database through the pgbouncer.
func (b *PgBouncer) Before(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = address(b.port)
	return u.String()
}
