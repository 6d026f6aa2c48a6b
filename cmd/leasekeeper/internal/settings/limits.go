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

// limits are the settings that bound the resources of the server, as the user wrote them.
type limits struct {
	requestBytes, txnOps, leases, streams, watchers, connections, requests, memory string
	maxTTL, progress                                                               string
	minFree, quota                                                                 string
}

var limitSettings = []setting{
	{"memory-limit", "auto", "the `bytes` of memory that the server may use, which also bounds what clients can use; auto for a quarter of the machine's memory, at least 1GiB", func(s *Server) *string { return &s.limits.memory }},
	{"max-request-bytes", strconv.Itoa(server.DefaultMaxRequestBytes), "the largest write, in `bytes`", func(s *Server) *string { return &s.limits.requestBytes }},
	{"max-txn-ops", strconv.Itoa(server.DefaultMaxTxnOps), "the largest `number` of operations in a transaction of etcd's API", func(s *Server) *string { return &s.limits.txnOps }},
	{"max-leases", "0", "the largest `number` of leases; 0 for no limit", func(s *Server) *string { return &s.limits.leases }},
	{"max-connections", strconv.Itoa(server.DefaultMaxConnections), "the largest `number` of connections; for each further one the server closes one", func(s *Server) *string { return &s.limits.connections }},
	{"max-requests", strconv.Itoa(server.DefaultMaxRequests), "the largest `number` of requests in progress; the server refuses further ones", func(s *Server) *string { return &s.limits.requests }},
	{"max-streams", strconv.Itoa(server.DefaultMaxStreams), "the largest `number` of streams on a connection; the client waits before it opens further ones", func(s *Server) *string { return &s.limits.streams }},
	{"max-watchers", strconv.Itoa(server.DefaultMaxWatchers), "the largest `number` of watchers on a connection; the server refuses further ones", func(s *Server) *string { return &s.limits.watchers }},
	{"watch-progress-notify-interval", "10m", "the `duration` after which a watcher without events, which asked for progress, is notified", func(s *Server) *string { return &s.limits.progress }},
	{"max-ttl", server.DefaultMaxTTL.String(), "the longest TTL (`duration`) of a lease on a name; leases of etcd's API have etcd's own limit", func(s *Server) *string { return &s.limits.maxTTL }},
	{"min-free-bytes", writeBytes(replica.DefaultMinFreeBytes), "the free `bytes` on the disk below which the server refuses puts and grants; 0 for no limit", func(s *Server) *string { return &s.limits.minFree }},
	{"quota-bytes", writeBytes(replica.DefaultQuotaBytes), "the `bytes` of data above which the server refuses puts and grants; 0 for no limit", func(s *Server) *string { return &s.limits.quota }},
}

// Bound writes the limits and the retention into the configurations of the front and the member.
func (s Server) Bound(front *server.Config, member *node.Config) (err error) {
	if member.Retention, err = s.parseRetention(); err != nil {
		return err
	}
	return s.limits.apply(front, member, s.clusterSettings.given())
}

// apply writes the limits into the configurations of the front and the member. clustered says that the member is in a cluster.
func (l limits) apply(front *server.Config, member *node.Config, clustered bool) error {
	for _, f := range []struct {
		key, text   string
		least, most int
		field       *int
	}{
		{"max-request-bytes", l.requestBytes, 1, math.MaxInt32, &front.MaxRequestBytes},
		{"max-txn-ops", l.txnOps, 1, server.TxnOpsLimit, &front.MaxTxnOps},
		{"max-leases", l.leases, 0, math.MaxInt32, &member.MaxLeases},
		{"max-connections", l.connections, 1, math.MaxInt32, &front.MaxConnections},
		{"max-requests", l.requests, 1, math.MaxInt32, &front.MaxRequests},
		{"max-streams", l.streams, 1, math.MaxInt32, &front.MaxStreams},
		{"max-watchers", l.watchers, 1, math.MaxInt32, &front.MaxWatchers},
	} {
		n, err := strconv.ParseInt(f.text, 10, 64)
		switch {
		case err != nil || n < int64(f.least) || n > math.MaxInt32:
			return command.WrongUsage("%s is %q: write a whole number of at least %d", f.key, f.text, f.least)
		case n > int64(f.most):
			return command.WrongUsage("%s is %d: write a number of at most %d", f.key, n, f.most)
		}
		*f.field = int(n)
	}
	member.MaxRequestBytes = front.MaxRequestBytes
	if err := l.resources(front, member, clustered); err != nil {
		return err
	}
	var err error
	if front.MaxTTL, err = time.ParseDuration(l.maxTTL); err != nil || front.MaxTTL < server.MinClaimTTL || front.MaxTTL > lessor.MaxTTL {
		return command.WrongUsage("max-ttl is %q: write a duration of %v or more, such as 24h", l.maxTTL, server.MinClaimTTL)
	}
	if front.ProgressInterval, err = time.ParseDuration(l.progress); err != nil || front.ProgressInterval < minProgressInterval {
		return command.WrongUsage("watch-progress-notify-interval is %q: write a duration of %v or more, such as 5s", l.progress, minProgressInterval)
	}
	member.Space, err = l.space()
	return err
}

// minProgressInterval is etcd's lower bound of the interval of progress notifications.
const minProgressInterval = 100 * time.Millisecond

// resources writes the limits that follow from the memory and the file descriptors of this process.
func (l limits) resources(front *server.Config, member *node.Config, clustered bool) error {
	var err error
	if front.MemoryLimit, err = memoryLimit(l.memory, ReadAvailableMemory()); err != nil {
		return err
	}
	member.AnswerBytes = front.MemoryLimit / answersToWritesPart
	files := ReadFileLimit()
	shares, err := shareFiles(files, node.DefaultMaxOpenFiles, clustered)
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

// answersToWritesPart is the divisor of the memory limit for the bytes of answers to requests that write.
const answersToWritesPart = 16
