package server

import (
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func BenchmarkKeepAliveRenewals(b *testing.B) {
	for _, streams := range []int{1, 4, 64} {
		b.Run(fmt.Sprint(streams), func(b *testing.B) {
			f := startFront(b)
			for i := range 64 {
				f.grant(6000, int64(i+1))
			}
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range streams {
				wg.Go(func() {
					s, err := f.lease.LeaseKeepAlive(b.Context())
					if err != nil {
						b.Error(err)
						return
					}
					n := b.N/streams + 1
					wg.Go(func() {
						var req pb.LeaseKeepAliveRequest
						for i := range n {
							req.ID = int64(i%64 + 1)
							if s.SendMsg(&req) != nil {
								return
							}
						}
					})
					var resp pb.LeaseKeepAliveResponse
					for range n {
						if err := s.RecvMsg(&resp); err != nil || resp.TTL == 0 {
							b.Error(err, resp.TTL)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "renewals/s")
		})
	}
}

func BenchmarkLeaseGrant(b *testing.B) {
	for _, flight := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(flight), func(b *testing.B) {
			f := startFront(b)
			var wg sync.WaitGroup
			b.ResetTimer()
			for range flight {
				wg.Go(func() {
					for range b.N/flight + 1 {
						if _, err := f.lease.LeaseGrant(b.Context(), &pb.LeaseGrantRequest{TTL: 6000}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
		})
	}
}
