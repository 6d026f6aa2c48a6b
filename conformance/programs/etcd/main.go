//go:build linux

package main

import (
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// settings are those flags of etcd that the suites set.
type settings struct {
	dataDir, client string
	cert, key, ca   string
	passed          []string // flags that the members have under the same name
}

func main() {
	// The system kills the members when the thread ends that has started them.
	runtime.LockOSThread()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}

// run runs the members until one of them ends.
func run(args []string) error {
	program := os.Getenv("SUITE_MEMBER")
	if program == "" {
		return fmt.Errorf("SUITE_MEMBER does not name a program")
	}
	s, err := parse(args)
	if err != nil {
		return err
	}
	clients, peers, err := s.addresses()
	if err != nil {
		return err
	}
	var list []string
	for i, peer := range peers {
		list = append(list, fmt.Sprintf("%c=%s", 'a'+i, peer))
	}
	ended := make(chan error)
	for i := range clients {
		name := string(rune('a' + i))
		cmd := exec.Command(program, append([]string{
			"serve", "--name", name, "--data-dir", filepath.Join(s.dataDir, name), "--http", "off",
			"--listen", clients[i], "--peer-listen", peers[i], "--initial-cluster", strings.Join(list, ","),
		}, s.flags()...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() { ended <- fmt.Errorf("member %s ended: %w", name, cmd.Wait()) }()
	}
	return <-ended
}

// parse reads etcd's flags. It refuses those that no suite sets.
func parse(args []string) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	flags.StringVar(&s.dataDir, "data-dir", "", "the directory for the members' data")
	flags.StringVar(&s.client, "listen-client-urls", "", "the URL at which the first member serves clients")
	flags.StringVar(&s.cert, "cert-file", "", "the certificate to show to clients")
	flags.StringVar(&s.key, "key-file", "", "the certificate's key")
	flags.StringVar(&s.ca, "trusted-ca-file", "", "the authority of clients' certificates")
	flags.Bool("client-cert-auth", false, "whether clients need a certificate: they do with --trusted-ca-file")
	for _, name := range []string{"log-level", "max-txn-ops", "max-request-bytes", "watch-progress-notify-interval"} {
		flags.Func(name, "as the members have it", func(value string) error {
			s.passed = append(s.passed, "--"+name, value)
			return nil
		})
	}
	for _, name := range []string{
		"name", "advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls", "initial-cluster",
		"peer-cert-file", "peer-key-file", "peer-trusted-ca-file",
	} {
		flags.String(name, "", "no effect: the members choose their names, and their peer addresses on loopback")
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if s.dataDir == "" || s.client == "" {
		return nil, fmt.Errorf("--data-dir and --listen-client-urls are required")
	}
	return s, nil
}

// flags returns those flags that are the same for each member.
func (s *settings) flags() []string {
	flags := s.passed
	if s.cert != "" {
		flags = append(flags, "--cert", s.cert, "--key", s.key)
	}
	if s.ca != "" {
		flags = append(flags, "--client-ca", s.ca, "--insecure-peers")
	}
	return flags
}

// addresses returns the members' addresses for clients and for each other.
func (s *settings) addresses() (clients, peers []string, err error) {
	u, err := url.Parse(s.client)
	if err != nil {
		return nil, nil, err
	}
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil {
		return nil, nil, err
	}
	// All are open at once, so that they differ.
	var free []string
	for range 5 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, nil, err
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, nil, err
		}
		free = append(free, net.JoinHostPort(host, port))
	}
	return append([]string{u.Host}, free[:2]...), free[2:], nil
}
