//go:build unix

package databases

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// requireRedis is the name of Redis in LEASEKEEPER_TEST_REQUIRE.
const requireRedis = "redis"

// redisDatabases is how many databases a [RedisServer] has.
const redisDatabases = 1000

// RedisServer is a Redis server that writes nothing to the disk and has no network.
type RedisServer struct {
	socket string
	count  atomic.Int64
}

// Redis returns a server. The tests of the binary share it if their TestMain calls [Main]; otherwise it is the test's
// own.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	return shared(t, requireRedis, NewRedis)
}

// NewRedis starts a server for one test alone.
func NewRedis(t testing.TB) *RedisServer {
	t.Helper()
	server := required.Program(t, requireRedis, "redis-server", "/usr/bin")
	dir := newDirectory(t)
	s := &RedisServer{socket: filepath.Join(dir, "socket")}
	startServer(t, dir, exec.Command(server, "--port", "0", "--unixsocket", s.socket, "--unixsocketperm", "777",
		"--save", "", "--appendonly", "no", "--databases", strconv.Itoa(redisDatabases)))
	for limit := time.Now().Add(startLimit); ; time.Sleep(20 * time.Millisecond) {
		err := s.ping()
		if err == nil {
			return s
		}
		if time.Now().After(limit) {
			t.Fatalf("Redis does not answer: %v", err)
		}
	}
}

// ping returns an error unless the server answers.
func (s *RedisServer) ping() error {
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && answer != "+PONG\r\n" {
		err = fmt.Errorf("it answers %q", answer)
	}
	return err
}

// Database returns the server's socket and the number of a database that no other test uses.
func (s *RedisServer) Database(t testing.TB) (socket string, database int) {
	t.Helper()
	n := s.count.Add(1)
	if n >= redisDatabases {
		t.Fatalf("more than %d databases of one Redis server", redisDatabases)
	}
	return s.socket, int(n)
}
