package holdwire

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// message returns requests and answers as 32 busy callers of one process make them.
func message() (*leasekeeperv1.HoldRequest, *leasekeeperv1.HoldResponse) {
	req, resp := new(leasekeeperv1.HoldRequest), new(leasekeeperv1.HoldResponse)
	for i := range 32 {
		claim, release, lease := uint64(100_000+2*i), uint64(100_001+2*i), int64(1)<<62-int64(i)
		name := fmt.Sprint("jobs/nightly/", i)
		req.Claims = append(req.Claims, &leasekeeperv1.HoldClaim{Number: claim, Name: name, Lease: lease, TtlMs: 60_000})
		req.Releases = append(req.Releases, &leasekeeperv1.HoldRelease{Number: release, Name: name, Lease: lease})
		resp.Answers = append(resp.Answers,
			&leasekeeperv1.HoldAnswer{Number: claim, State: leasekeeperv1.HoldAnswer_HELD, TtlMs: 60_000, Token: claim},
			&leasekeeperv1.HoldAnswer{Number: release, State: leasekeeperv1.HoldAnswer_RELEASED, Ended: true})
	}
	return req, resp
}

// compare measures this package against package proto.
func compare(b *testing.B, hand func() bool, with func() error) {
	b.Run("holdwire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !hand() {
				b.Fatal("the message is not plain")
			}
		}
	})
	b.Run("proto", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := with(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func marshal(b *testing.B, m proto.Message) []byte {
	text, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func BenchmarkAppendRequest(b *testing.B) {
	req, _ := message()
	var text []byte
	compare(b, func() (ok bool) {
		_ = RequestRoom(req)
		text, ok = AppendRequest(text[:0], req)
		return ok
	}, func() (err error) {
		text, err = proto.MarshalOptions{}.MarshalAppend(text[:0], req)
		return err
	})
}

func BenchmarkDecodeRequest(b *testing.B) {
	req, _ := message()
	text := marshal(b, req)
	compare(b, func() bool { return DecodeRequest(text, req) }, func() error { return proto.Unmarshal(text, req) })
}

func BenchmarkDecodeResponse(b *testing.B) {
	_, resp := message()
	text := marshal(b, resp)
	compare(b, func() bool { return DecodeResponse(text, resp) }, func() error { return proto.Unmarshal(text, resp) })
}
