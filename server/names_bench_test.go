package server

import (
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// benchLeases grants n leases and returns their ids.
func (f *front) benchLeases(n int) []int64 {
	f.t.Helper()
	ids := make([]int64, n)
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			for i := worker; i < n; i += 64 {
				ids[i] = int64(i + 1)
				if _, err := f.lease.LeaseGrant(f.t.Context(), &pb.LeaseGrantRequest{TTL: 6000, ID: ids[i]}); err != nil {
					f.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return ids
}

// Each iteration renews 100 000 leases, in messages of the given size, with four messages open.
func BenchmarkRenewMessages(b *testing.B) {
	for _, size := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := startFront(b)
			ids := f.benchLeases(100_000)
			stream, err := f.names().Renew(b.Context())
			wantOK(b, err)
			messages := b.N/size + 1
			window := make(chan struct{}, 4)
			b.ReportAllocs()
			b.ResetTimer()
			go func() {
				for i := range messages {
					window <- struct{}{}
					from := i * size % len(ids)
					if stream.Send(&leasekeeperv1.RenewRequest{Number: uint64(i + 1), Leases: ids[from : from+size]}) != nil {
						return
					}
				}
			}()
			for range messages {
				resp, err := stream.Recv()
				if err != nil || len(resp.Refused)+len(resp.Pending) > 0 {
					b.Fatal(resp, err)
				}
				<-window
			}
			b.ReportMetric(float64(messages*size)/b.Elapsed().Seconds(), "ids/s")
		})
	}
}

// Each worker acquires and releases its own name.
func BenchmarkAcquireAndReleaseName(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(fmt.Sprint(workers), func(b *testing.B) {
			f := startFront(b)
			client := f.names()
			var wg sync.WaitGroup
			b.ResetTimer()
			for worker := range workers {
				name := fmt.Sprintf("jobs/%d", worker)
				wg.Go(func() {
					for range b.N/workers + 1 {
						stream, err := client.Acquire(b.Context(), &leasekeeperv1.AcquireRequest{Name: name, TtlMs: 60_000})
						if err != nil {
							b.Error(err)
							return
						}
						got, err := stream.Recv()
						if err != nil {
							b.Error(err)
							return
						}
						if _, err := client.Release(b.Context(), &leasekeeperv1.ReleaseRequest{Name: name, Lease: got.Lease}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}
