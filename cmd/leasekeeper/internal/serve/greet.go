package serve

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/server"
)

// greet prints the addresses of the server, and commands to try next.
func greet(w io.Writer, version string, s settings.Server, front *server.Server) {
	dataDir := s.DataDir
	if abs, err := filepath.Abs(dataDir); err == nil {
		dataDir = abs
	}
	client, http := front.Addr(), front.HTTPAddr()
	if http == "" {
		http = server.HTTPOff
	} else {
		http = scheme(s) + reachable(http)
	}
	self, flag := selfCommand(), ""
	endpoint := reachable(client)
	if s.Cert != "" {
		client, endpoint = "https://"+client, "https://"+endpoint
	}
	if endpoint != settings.DefaultEndpoint {
		flag = " --endpoint " + endpoint
	}
	console.PrintLines(w, fmt.Sprintf(`leasekeeper %s is ready

  clients  %s
  http     %s
  data     %s
%s
Try, in another terminal:

  %s status%s
  %s lease grant 60%s
  %s lease list%s

Stop it with Ctrl-C.
`, version, client, http, dataDir, clusterInWords(s), self, flag, self, flag, self, flag))
}

// clusterInWords returns a line about the cluster; empty if the server is not in one.
func clusterInWords(s settings.Server) string {
	plan, err := s.Cluster()
	if plan == nil || err != nil {
		return ""
	}
	if len(plan.Members) == 0 {
		return fmt.Sprintf("  member   %s, peer address %s\n", s.Name, plan.Self.Address)
	}
	var names []string
	for _, m := range plan.Members {
		names = append(names, m.Name)
	}
	return fmt.Sprintf("  member   %s of %s, peer address %s\n", s.Name, strings.Join(names, ", "), plan.Self.Address)
}

// scheme returns the prefix of the addresses of this server.
func scheme(s settings.Server) string {
	if s.Cert != "" {
		return "https://"
	}
	return "http://"
}

// reachable replaces a wildcard address, which a client cannot connect to, by the loopback address.
func reachable(addr string) string {
	for _, wildcard := range []string{"[::]", "0.0.0.0"} {
		if port, ok := strings.CutPrefix(addr, wildcard+":"); ok {
			return "127.0.0.1:" + port
		}
	}
	return addr
}

// selfCommand returns the command that starts this program from the shell that started it.
func selfCommand() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	if found, err := exec.LookPath("leasekeeper"); err == nil && sameFile(found, path) {
		return "leasekeeper"
	}
	if strings.Contains(filepath.ToSlash(path), "/go-build") { // `go run` deletes the file when the program ends
		const source = "./cmd/leasekeeper"
		if _, err := os.Stat(filepath.Join(source, "main.go")); err == nil {
			return "go run " + source
		}
		return "go run ."
	}
	return os.Args[0]
}

func sameFile(a, b string) bool {
	left, err := os.Stat(a)
	if err != nil {
		return false
	}
	right, err := os.Stat(b)
	return err == nil && os.SameFile(left, right)
}
