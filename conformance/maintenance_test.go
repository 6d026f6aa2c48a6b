package conformance

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

func TestHashChangesWithEachWrite(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		st, ms := s.store(), s.stubs()
		hash := func() uint32 {
			t.Helper()
			resp, err := ms.Hash(s.context(), &pb.HashRequest{})
			wantOK(t, "hash", err)
			wantEqual(t, "identity", *s.identity(resp.Header), *s.identity(st.get("a").Header))
			wantEqual(t, "revision", resp.Header.Revision, st.revision())
			return resp.Hash
		}
		empty := hash()
		wantEqual(t, "asked again", hash(), empty)
		st.put("a", "1")
		first := hash()
		wantEqual(t, "asked again", hash(), first)
		if first == empty {
			t.Error("a write has not changed the hash")
		}
		st.put("a", "2")
		if hash() == first {
			t.Error("another write has not changed the hash")
		}
	}, areaHash)
}

// hashKV is a HashKV that has to succeed.
func (st store) hashKV(revision int64) *pb.HashKVResponse {
	st.s.t.Helper()
	resp, err := pb.NewMaintenanceClient(st.c.ActiveConnection()).HashKV(st.s.context(), &pb.HashKVRequest{Revision: revision})
	wantOK(st.s.t, "hashkv", err)
	return resp
}

func TestHashKVCoversKeysUpToARevision(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		st, ms := s.store(), s.stubs()
		st.hashKV(0) // of nothing
		seen := make(map[uint32]int64)
		at := make(map[int64]uint32)
		for i, write := range []func(){
			func() { st.put("a", "1") }, func() { st.put("a", "1") }, func() { st.put("b", "1") },
			func() { st.delete("a") }, func() { st.put("b", "2") },
		} {
			write()
			revision := int64(i + 2)
			resp := st.hashKV(0)
			wantEqual(t, "header", resp.Header.Revision, revision)
			wantEqual(t, "identity", *s.identity(resp.Header), *s.identity(st.get("a").Header))
			wantEqual(t, "hashed revision", resp.HashRevision, revision)
			wantEqual(t, "compact revision", resp.CompactRevision, -1)
			wantEqual(t, "asked for by its number", st.hashKV(revision).Hash, resp.Hash)
			if before, again := seen[resp.Hash]; again {
				t.Errorf("revisions %d and %d have one hash", before, revision)
			}
			seen[resp.Hash], at[revision] = revision, resp.Hash
		}
		lease := st.grant(60)
		wantEqual(t, "a lease without keys is not part of it", st.hashKV(0).Hash, at[6])
		st.revoke(lease.ID)
		for revision, hash := range at {
			resp := st.hashKV(revision)
			wantEqual(t, "of the past", resp.Hash, hash)
			wantEqual(t, "header", resp.Header.Revision, 6)
			wantEqual(t, "hashed revision", resp.HashRevision, revision)
		}
		_, err := ms.HashKV(s.context(), &pb.HashKVRequest{Revision: 7})
		wantStatus(t, "of the future", err, codes.OutOfRange, textFutureRevision)
		s.kill()
		s.start()
		wantEqual(t, "after a restart", s.store().hashKV(0).Hash, at[6])
	}, areaHashKV)
}

// It is for comparing servers, so it must not depend on which one is asked.
func TestHashKVAgreesBetweenServers(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		hash := func(s *server) uint32 {
			st := s.store()
			_, err := st.c.Lease.Grant(s.context(), 600)
			wantOK(t, "grant", err)
			for i := range 20 {
				st.put(fmt.Sprint("key", i%7), fmt.Sprint(i))
			}
			st.delete("key", clientv3.WithPrefix())
			st.put("last", "")
			return st.hashKV(0).Hash
		}
		wantEqual(t, "hashes", hash(s), hash(startServer(t, s.target)))
	}, areaHashKV)
}

func TestHashKVAndCompaction(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		st, ms := s.store(), s.stubs()
		for i := range 5 {
			st.put("a", fmt.Sprint(i)) // 2 to 6
		}
		st.compact(4)
		for _, revision := range []int64{1, 3} {
			_, err := ms.HashKV(s.context(), &pb.HashKVRequest{Revision: revision})
			wantStatus(t, "below", err, codes.OutOfRange, textCompacted)
		}
		resp := st.hashKV(0)
		wantEqual(t, "compact revision", resp.CompactRevision, 4)
		wantEqual(t, "hashed revision", resp.HashRevision, 6)
		wantEqual(t, "asked again", st.hashKV(6).Hash, resp.Hash)
		wantEqual(t, "at the compacted revision", st.hashKV(4).HashRevision, 4)
	}, areaHashKV, areaCompact)
}

func TestEtcdctlEndpointHashKV(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		s.mustCtl("put", "a", "1")
		s.mustCtl("put", "a", "2")
		now, past := s.store().hashKV(0).Hash, s.store().hashKV(2).Hash
		s.wantCtl(fmt.Sprintf("%s, %d, 3\n", s.grpcAddr, now), "endpoint", "hashkv")
		s.wantCtl(fmt.Sprintf("%s, %d, 2\n", s.grpcAddr, past), "endpoint", "hashkv", "--rev", "2")
		s.wantCtl(fmt.Sprintf(`[{"Endpoint":"%s","HashKV":{"header":%s,"hash":%d,"compact_revision":-1,"hash_revision":3}}]`+"\n",
			s.grpcAddr, jsonHeader("3"), now), "endpoint", "hashkv", "-w", "json")
	}, areaHashKV)
}

func TestDefragmentKeepsKeysHistoryAndWatchers(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(600).ID
		w := s.watch()
		watcher := w.watchKey("b", "", 0)
		for range 5 {
			st.put("a", "1", clientv3.WithLease(lease)) // 2 to 6
		}
		_, err := s.stubs().Defragment(s.context(), &pb.DefragmentRequest{})
		wantOK(t, "defragment", err)
		wantEqual(t, "store", st.all(), fmt.Sprintf("a=1 c2 m6 v5 lease %x", int64(lease)))
		wantEqual(t, "the past", show(st.get("a", clientv3.WithRev(3)).Kvs...), fmt.Sprintf("a=1 c2 m3 v2 lease %x", int64(lease)))
		st.put("b", "1") // 7
		wantEqual(t, "watchers go on", w.eventsUntil(7)[watcher], "PUT b=1 c7 m7 v1")
		out := s.mustCtl("defrag")
		if !regexp.MustCompile(`^Finished defragmenting etcd member\[` + regexp.QuoteMeta(s.grpcAddr) + `\]\. took \S+\n$`).MatchString(out) {
			t.Errorf("defrag printed %q", out)
		}
		wantEqual(t, "no write", st.revision(), 7)
	}, areaDefragment)
}

func TestSnapshotHasADigestAndAllData(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		st := s.store()
		for i := range 30 {
			st.put(fmt.Sprint("key", i), strings.Repeat("v", 10<<10))
		}
		s.awaitStorageVersion()
		var data []byte
		var left []uint64
		for _, part := range s.snapshot() {
			if !strings.HasPrefix(part.Version, "3.") {
				t.Errorf("version %q", part.Version)
			}
			data = append(data, part.Blob...)
			left = append(left, part.RemainingBytes)
		}
		if !slices.IsSortedFunc(left, func(a, b uint64) int { return int(int64(b) - int64(a)) }) || left[len(left)-1] != 0 {
			t.Errorf("remaining bytes %v", left)
		}
		checkSnapshot(t, data)
		wantEqual(t, "no write", st.revision(), 31)
	}, areaSnapshot)
}

// snapshot receives all parts of a snapshot, at least one.
func (s *server) snapshot() (parts []*pb.SnapshotResponse) {
	s.t.Helper()
	stream, err := s.stubs().Snapshot(s.context(), &pb.SnapshotRequest{})
	wantOK(s.t, "snapshot", err)
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) && len(parts) > 0 {
			return parts
		}
		wantOK(s.t, "snapshot", err)
		parts = append(parts, part)
	}
}

// awaitStorageVersion waits until a snapshot names the version of the server's data. etcd looks for that version every four
// seconds from its start on, and its first look may come before it has written what it looks for.
func (s *server) awaitStorageVersion() {
	s.t.Helper()
	eventually(s.t, waitLimit, "a snapshot that names its version", func() bool {
		return s.snapshot()[0].Version != ""
	})
}

// checkSnapshot checks what etcdctl and its like check: a digest of all that
// comes before it, after whole sectors.
func checkSnapshot(t *testing.T, data []byte) {
	t.Helper()
	if len(data)%512 != sha256.Size || len(data) < 512 {
		t.Fatalf("%d bytes", len(data))
	}
	body, digest := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], digest) {
		t.Error("the digest is wrong")
	}
}

func TestEtcdctlSnapshotSave(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		s.mustCtl("put", "a", "1")
		s.awaitStorageVersion()
		path := filepath.Join(t.TempDir(), "snapshot")
		out := s.mustCtl("snapshot", "save", path)
		if !regexp.MustCompile(`^Snapshot saved at ` + regexp.QuoteMeta(path) + `\nServer version 3\.\d+\.\d+\n$`).MatchString(out) {
			t.Errorf("snapshot save printed %q", out)
		}
		data, err := os.ReadFile(path)
		wantOK(t, "reading", err)
		checkSnapshot(t, data)
	}, areaSnapshot)
}

const textNoSpace = "etcdserver: mvcc: database space exceeded"

// The alarm for want of space stops what takes space, and nothing else.
func TestAlarmNoSpace(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		st, ms := s.store(), s.stubs()
		lease := st.grant(600).ID
		st.put("a", "1", clientv3.WithLease(lease)) // 2
		member := s.leaderID()
		alarm := func(action pb.AlarmRequest_AlarmAction, kind pb.AlarmType) string {
			t.Helper()
			resp, err := ms.Alarm(s.context(), &pb.AlarmRequest{Action: action, MemberID: member, Alarm: kind})
			wantOK(t, "alarm", err)
			var out []string
			for _, a := range resp.Alarms {
				wantEqual(t, "member", a.MemberID, member)
				out = append(out, a.Alarm.String())
			}
			return strings.Join(out, " ")
		}
		wantEqual(t, "raised", alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE), "NOSPACE")
		wantEqual(t, "raised again", alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE), "NOSPACE")
		wantEqual(t, "listed", alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE), "NOSPACE")
		wantEqual(t, "listed by kind", alarm(pb.AlarmRequest_GET, pb.AlarmType_NOSPACE), "NOSPACE")
		wantEqual(t, "not of another kind", alarm(pb.AlarmRequest_GET, pb.AlarmType_CORRUPT), "")
		// How wide the space between them is, protobuf leaves to chance.
		wantEqual(t, "etcdctl", strings.Join(strings.Fields(s.mustCtl("alarm", "list")), " "), fmt.Sprintf("memberID:%d alarm:NOSPACE", member))

		_, err := ms.Put(s.context(), &pb.PutRequest{Key: []byte("a")})
		wantStatus(t, "put", err, codes.ResourceExhausted, textNoSpace)
		_, err = ms.LeaseGrant(s.context(), &pb.LeaseGrantRequest{TTL: 60})
		wantStatus(t, "grant", err, codes.ResourceExhausted, textNoSpace)
		k := s.keepAlive()
		k.send(int64(lease))
		k.receive(int64(lease), 600)
		wantEqual(t, "delete", st.delete("none").Deleted, 0)
		st.revoke(lease) // 3

		s.mustCtl("alarm", "disarm")
		wantEqual(t, "disarmed", alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE), "")
		wantEqual(t, "disarmed again", alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_NOSPACE), "")
		wantEqual(t, "put", st.put("a", "2").Header.Revision, 4)
	}, areaAlarm)
}

// leaderID is the id of the leader. In a cluster of ours the leader's alarm counts.
func (s *server) leaderID() uint64 {
	s.t.Helper()
	resp, err := s.stubs().Status(s.context(), &pb.StatusRequest{})
	wantOK(s.t, "status", err)
	return resp.Leader
}

func TestAlarmNoSpaceAndTxns(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		st, ms := s.store(), s.stubs()
		st.put("a", "1") // 2
		member := s.leaderID()
		_, err := ms.Alarm(s.context(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: member, Alarm: pb.AlarmType_NOSPACE})
		wantOK(t, "alarm", err)
		_, err = ms.Txn(s.context(), then(opPut("a", "2")))
		wantStatus(t, "txn that puts", err, codes.ResourceExhausted, textNoSpace)
		wantEqual(t, "txn that reads", showTxn(st.txn(then(opRange("b", "")))), "then [0: ]")
		wantEqual(t, "txn that deletes", showTxn(st.txn(then(opDelete("a", "")))), "then [deleted 1: a=1 c2 m2 v1]") // 3
		st.compact(2)
		s.mustCtl("alarm", "disarm")
		st.txn(then(opPut("a", "2")))
		wantEqual(t, "store", st.all(), "a=2 c4 m4 v1")
	}, areaAlarm, areaTxn, areaCompact)
}

// etcd has no reflection. Our server's reflection lists all services.
func TestReflectionListsAllServices(t *testing.T) {
	eachTargetWith(t, func(t *testing.T, s *server) {
		stream, err := reflectionpb.NewServerReflectionClient(s.stubs().conn).ServerReflectionInfo(s.context())
		wantOK(t, "opening", err)
		ask := func(req *reflectionpb.ServerReflectionRequest) (*reflectionpb.ServerReflectionResponse, error) {
			if err := stream.Send(req); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return stream.Recv()
		}
		resp, err := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		if s.target == etcd {
			wantEqual(t, "etcd", codeOf(err), codes.Unimplemented)
			return
		}
		wantOK(t, "list", err)
		var names []string
		for _, service := range resp.GetListServicesResponse().GetService() {
			names = append(names, service.Name)
		}
		for _, want := range []string{
			"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Cluster", "etcdserverpb.Maintenance",
			"v3lockpb.Lock", "v3electionpb.Election", "grpc.health.v1.Health",
		} {
			if !slices.Contains(names, want) {
				t.Errorf("%s is not listed in %q", want, names)
			}
			resp, err := ask(&reflectionpb.ServerReflectionRequest{
				MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: want}})
			wantOK(t, want, err)
			if len(resp.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
				t.Errorf("%s is not described: %v", want, resp)
			}
		}
	}, areaReflection)
}
