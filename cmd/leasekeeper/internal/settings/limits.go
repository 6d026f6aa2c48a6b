package settings

import (
	"math"
	"strconv"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server"
)

// limits are the settings that bound what clients can take.
type limits struct {
	requestBytes, leases, streams, watchers, connections, requests, memory string
	maxTTL                                                                 string
	minFree, quota                                                         string
}

var limitSettings = []setting{
	{"memory-limit", "auto", "the `bytes` of memory that the server may use, from which follows how much clients can take; auto for a quarter of what there is, at least 1GiB", func(s *Server) *string { return &s.limits.memory }},
	{"max-request-bytes", strconv.Itoa(server.DefaultMaxRequestBytes), "the largest write, in `bytes`", func(s *Server) *string { return &s.limits.requestBytes }},
	{"max-leases", "0", "the `number` of leases beyond which none is granted; 0 for any number", func(s *Server) *string { return &s.limits.leases }},
	{"max-connections", strconv.Itoa(server.DefaultMaxConnections), "the `number` of connections beyond which one is closed", func(s *Server) *string { return &s.limits.connections }},
	{"max-requests", strconv.Itoa(server.DefaultMaxRequests), "the `number` of requests under way beyond which one is refused", func(s *Server) *string { return &s.limits.requests }},
	{"max-streams", strconv.Itoa(server.DefaultMaxStreams), "the `number` of streams on a connection beyond which its client has to wait", func(s *Server) *string { return &s.limits.streams }},
	{"max-watchers", strconv.Itoa(server.DefaultMaxWatchers), "the `number` of watchers on a connection beyond which one is refused", func(s *Server) *string { return &s.limits.watchers }},
	{"max-ttl", server.DefaultMaxTTL.String(), "the longest `duration` that a lease on a name lives without renewal; leases of etcd's API have etcd's own bound", func(s *Server) *string { return &s.limits.maxTTL }},
	{"min-free-bytes", writeBytes(replica.DefaultMinFreeBytes), "free `bytes` on the disk below which puts and grants are refused; 0 for none", func(s *Server) *string { return &s.limits.minFree }},
	{"quota-bytes", writeBytes(replica.DefaultQuotaBytes), "`bytes` of data beyond which puts and grants are refused; 0 for any number", func(s *Server) *string { return &s.limits.quota }},
}

// Bound writes what the settings limit into the configurations of both parts of the server.
func (s Server) Bound(front *server.Config, member *node.Config) (err error) {
	if member.Retention, err = s.history(); err != nil {
		return err
	}
	return s.limits.apply(front, member)
}

// apply writes the limits into the configurations of both parts of the server.
func (l limits) apply(front *server.Config, member *node.Config) error {
	for _, f := range []struct {
		key, text string
		least     int
		field     *int
	}{
		{"max-request-bytes", l.requestBytes, 1, &front.MaxRequestBytes},
		{"max-leases", l.leases, 0, &member.MaxLeases},
		{"max-connections", l.connections, 1, &front.MaxConnections},
		{"max-requests", l.requests, 1, &front.MaxRequests},
		{"max-streams", l.streams, 1, &front.MaxStreams},
		{"max-watchers", l.watchers, 1, &front.MaxWatchers},
	} {
		n, err := strconv.ParseInt(f.text, 10, 64)
		if err != nil || n < int64(f.least) || n > math.MaxInt32 {
			return command.WrongUsage("%s is %q: write a whole number from %d on", f.key, f.text, f.least)
		}
		*f.field = int(n)
	}
	member.MaxRequestBytes = front.MaxRequestBytes
	if err := l.resources(front, member); err != nil {
		return err
	}
	var err error
	if front.MaxTTL, err = time.ParseDuration(l.maxTTL); err != nil || front.MaxTTL < server.MinClaimTTL || front.MaxTTL > lessor.MaxTTL {
		return command.WrongUsage("max-ttl is %q: write a duration of %v or more, such as 24h", l.maxTTL, server.MinClaimTTL)
	}
	member.Space, err = l.space()
	return err
}

// resources bounds what follows from the memory and the descriptors of this process.
func (l limits) resources(front *server.Config, member *node.Config) error {
	var err error
	if front.MemoryLimit, err = memoryLimit(l.memory, memoryThere(readFile)); err != nil {
		return err
	}
	member.AnswerBytes = front.MemoryLimit / answersToWritesPart
	files, err := fileLimit()
	if err != nil {
		files = 0 // as if there were no limit
	}
	shares, err := shareFiles(files, node.DefaultMaxOpenFiles)
	if err != nil {
		return err
	}
	member.MaxOpenFiles = shares.database
	front.MaxConnectionsHTTP = front.MaxConnections
	if files > 0 {
		front.MaxConnections, front.MaxConnectionsHTTP = min(front.MaxConnections, shares.grpc), min(front.MaxConnections, shares.http)
	}
	return nil
}

// answersToWritesPart is the part of the memory limit, as its divisor, that answers to requests that write may take.
const answersToWritesPart = 16
