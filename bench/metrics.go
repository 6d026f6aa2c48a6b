package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	// collectLimit bounds how long a target takes to collect its garbage. Go collects at least every two minutes.
	collectLimit = 130 * time.Second
	// readsBetweenLooks is the number of reads between two checks for a collection.
	readsBetweenLooks = 200
	// sweep is how long freed memory may take to return to the system after a collection.
	sweep = 300 * time.Millisecond
)

// liveHeap returns how many bytes are on a server's heap just after its garbage was collected. It makes
// garbage by reading until the collector runs.
func liveHeap(ctx context.Context, s *server, conns connections) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	before, err := s.metric(ctx, "go_memstats_last_gc_time_seconds")
	if err != nil {
		return 0, err
	}
	for {
		err := each(ctx, conns, rateConnections, readsBetweenLooks, func(ctx context.Context, conn *grpc.ClientConn, _ int) error {
			_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("garbage")})
			return err
		})
		if err != nil {
			return 0, err
		}
		now, err := s.metric(ctx, "go_memstats_last_gc_time_seconds")
		if err != nil {
			return 0, err
		}
		if now > before {
			break
		}
	}
	pause(ctx, sweep)
	return s.metric(ctx, "go_memstats_heap_alloc_bytes")
}

// metric reads one number without labels from the target's metrics.
func (s *server) metric(ctx context.Context, name string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metricsURL, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s", s.metricsURL, answer.Status)
	}
	return findMetric(answer.Body, name)
}

func findMetric(text io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
