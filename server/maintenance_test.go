package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// startTight returns a front whose node sees the free space that the test sets.
func startTight(t *testing.T) (*front, *atomic.Uint64) {
	t.Helper()
	free := new(atomic.Uint64)
	free.Store(1 << 30)
	started, err := node.Start(t.Context(), node.Config{
		Dir: t.TempDir(), Space: replica.SpaceLimits{MinFree: 1 << 20, Quota: 1 << 40},
		FreeBytes: func(string) (uint64, error) { return free.Load(), nil },
	})
	wantOK(t, err)
	t.Cleanup(func() { wantOK(t, started.Stop(limited(t, context.Background()))) })
	<-started.Ready()
	return startWith(t, anyPort(), func(*node.Node) member { return started }), free
}

func TestMaintenanceStatus(t *testing.T) {
	f := startFront(t)
	f.put("a", "")
	resp, err := f.maintenance.Status(f.ctx(), &pb.StatusRequest{})
	wantOK(t, err)
	f.header(resp.Header, 2)
	own := f.node.Header()
	wantEqual(t, "versions", resp.Version+" "+resp.StorageVersion, EtcdVersion+" "+EtcdVersion)
	wantEqual(t, "leader", resp.Leader, own.MemberID)
	wantEqual(t, "term", resp.RaftTerm, own.Term)
	if resp.DbSizeInUse <= 0 || resp.DbSize < resp.DbSizeInUse || resp.RaftIndex == 0 || resp.RaftAppliedIndex == 0 || resp.RaftAppliedIndex > resp.RaftIndex {
		t.Errorf("implausible status: %v", resp)
	}
	wantEqual(t, "errors", len(resp.Errors), 0)
	wantEqual(t, "downgrade", resp.DowngradeInfo.GetEnabled(), false)
}

// Without space, the member reports it in every place, and still serves requests that need none.
func TestWithoutSpaceWritesAreRefusedAndReadsServed(t *testing.T) {
	f, free := startTight(t)
	f.grant(600, 1)
	f.put("a", "")
	code, _ := f.get("/health")
	wantEqual(t, "/health", code, http.StatusOK)
	free.Store(1)
	eventually(t, "puts are refused", func() bool {
		_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("b")})
		if err != nil {
			wantStatus(t, err, rpctypes.ErrGRPCNoSpace)
		}
		return err != nil
	})
	_, err := f.lease.LeaseGrant(f.ctx(), &pb.LeaseGrantRequest{TTL: 60})
	wantStatus(t, err, rpctypes.ErrGRPCNoSpace)
	k := f.keepAlive(f.ctx())
	send(t, k, 1)
	renewed, err := k.Recv()
	wantOK(t, err)
	wantEqual(t, "renewed TTL", renewed.TTL, 600)
	_, err = f.kv.DeleteRange(f.ctx(), &pb.DeleteRangeRequest{Key: []byte("a")})
	wantOK(t, err)

	st, err := f.maintenance.Status(f.ctx(), &pb.StatusRequest{})
	wantOK(t, err)
	wantEqual(t, "quota", st.DbSizeQuota, 1<<40)
	wantEqual(t, "errors", strings.Join(st.Errors, ";"), fmt.Sprintf("memberID:%d alarm:NOSPACE", st.Header.MemberId))
	wantEqual(t, "listed", f.alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE), "NOSPACE")
	_, err = f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})
	wantCode(t, err, codes.FailedPrecondition)
	for path, want := range map[string]int{"/readyz": 200, "/livez": 200, "/health": 503, "/health?exclude=NOSPACE": 200} {
		code, _ := f.get(path)
		wantEqual(t, path, code, want)
	}
	_, body := f.get("/health")
	wantEqual(t, "/health", body, `{"health":"false","reason":"ALARM NOSPACE"}`+"\n")
	_, body = f.get("/metrics")
	for _, line := range []string{`leasekeeper_no_space{reason="disk"} 1`, `leasekeeper_no_space{reason="quota"} 0`,
		`leasekeeper_disk_free_bytes 1`, `leasekeeper_refused_total{reason="no_space"} 2`} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	free.Store(1 << 30)
	eventually(t, "it recovers", func() bool { return f.alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE) == "" })
	f.put("b", "")
}

// alarm lists, raises or removes alarms, and returns their names.
func (f *front) alarm(action pb.AlarmRequest_AlarmAction, kind pb.AlarmType) string {
	f.t.Helper()
	resp, err := f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: action, Alarm: kind})
	wantOK(f.t, err)
	var names []string
	for _, a := range resp.Alarms {
		wantEqual(f.t, "member", a.MemberID, resp.Header.MemberId)
		names = append(names, a.Alarm.String())
	}
	return strings.Join(names, " ")
}

func TestAlarmIsRaisedAndRemoved(t *testing.T) {
	f := startFront(t)
	const none, noSpace, corrupt = pb.AlarmType_NONE, pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT
	for _, kind := range []pb.AlarmType{none, noSpace, corrupt} {
		wantEqual(t, "listed", f.alarm(pb.AlarmRequest_GET, kind), "")
		wantEqual(t, "lifted", f.alarm(pb.AlarmRequest_DEACTIVATE, kind), "")
	}
	for range 2 {
		wantEqual(t, "raised", f.alarm(pb.AlarmRequest_ACTIVATE, noSpace), "NOSPACE")
		wantEqual(t, "listed", f.alarm(pb.AlarmRequest_GET, none), "NOSPACE")
		wantEqual(t, "of another kind", f.alarm(pb.AlarmRequest_GET, corrupt), "")
	}
	_, err := f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("a")})
	wantStatus(t, err, rpctypes.ErrGRPCNoSpace)
	wantEqual(t, "lifted", f.alarm(pb.AlarmRequest_DEACTIVATE, noSpace), "NOSPACE")
	f.put("a", "")
	_, err = f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: corrupt})
	wantCode(t, err, codes.Unimplemented)
	_, err = f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: noSpace, MemberID: 1})
	wantCode(t, err, codes.Unimplemented)
	_, err = f.maintenance.Alarm(f.ctx(), &pb.AlarmRequest{Action: 9})
	wantCode(t, err, codes.InvalidArgument)
}

func TestHashKVOfARevisionIsStable(t *testing.T) {
	f := startFront(t)
	f.put("a", "1")
	first, err := f.maintenance.HashKV(f.ctx(), &pb.HashKVRequest{})
	wantOK(t, err)
	f.header(first.Header, 2)
	wantEqual(t, "revisions", fmt.Sprint(first.HashRevision, first.CompactRevision), "2 -1")
	f.put("a", "2")
	again, err := f.maintenance.HashKV(f.ctx(), &pb.HashKVRequest{Revision: 2})
	wantOK(t, err)
	f.header(again.Header, 3)
	wantEqual(t, "hash", again.Hash, first.Hash)
	now, err := f.maintenance.Hash(f.ctx(), &pb.HashRequest{})
	wantOK(t, err)
	f.header(now.Header, 3)
	if now.Hash == first.Hash {
		t.Error("a write has not changed the hash")
	}
	_, err = f.maintenance.HashKV(f.ctx(), &pb.HashKVRequest{Revision: 4})
	wantStatus(t, err, rpctypes.ErrGRPCFutureRev)
}

func TestDefragmentHasItsOwnTimeLimit(t *testing.T) {
	f := startFront(t)
	f.put("a", "1")
	resp, err := f.maintenance.Defragment(f.ctx(), &pb.DefragmentRequest{})
	wantOK(t, err)
	f.header(resp.Header, 2)
	wantEqual(t, "limit", f.server.timeLimit(pb.Maintenance_Defragment_FullMethodName), maintenanceLimit)
	wantEqual(t, "limit of others", f.server.timeLimit(pb.KV_Put_FullMethodName), DefaultRequestTimeout)
}

// The stream carries a snapshot in etcd's format, with its checksum where etcd's tools expect it.
func TestSnapshotEndsWithItsChecksum(t *testing.T) {
	f := startFront(t)
	f.put("a", strings.Repeat("x", 100<<10))
	stream, err := f.maintenance.Snapshot(f.ctx(), &pb.SnapshotRequest{})
	wantOK(t, err)
	var data []byte
	left := int64(-1)
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		wantOK(t, err)
		data = append(data, resp.Blob...)
		if left >= 0 {
			wantEqual(t, "remaining bytes", int64(resp.RemainingBytes), left-int64(len(resp.Blob)))
		}
		left = int64(resp.RemainingBytes)
		wantEqual(t, "version", resp.Version, "3.6.0")
	}
	wantEqual(t, "remaining bytes at the end", left, 0)
	body := data[:len(data)-sha256.Size]
	if sum := sha256.Sum256(body); len(body)%512 != 0 || !bytes.Equal(sum[:], data[len(body):]) {
		t.Errorf("no checksum behind %d bytes", len(body))
	}
	path := filepath.Join(t.TempDir(), "etcd.snapshot")
	wantOK(t, os.WriteFile(path, data, 0o600))
	restored, found, err := node.Import(f.ctx(), vfs.Default, path, filepath.Join(t.TempDir(), "new"), node.RestoreOptions{Now: time.Now()})
	wantOK(t, err)
	wantEqual(t, "revision", restored.Was, 2)
	wantEqual(t, "keys", found.Keys, 1)
	wantEqual(t, "checked", found.Checked, true)
}

// While one client receives a snapshot in etcd's format, another one is refused.
func TestSecondSnapshotInFormatOfEtcdIsRefused(t *testing.T) {
	f := startFront(t)
	for i := range 16 {
		f.put(fmt.Sprint(i), strings.Repeat("x", 1<<20))
	}
	first, err := f.maintenance.Snapshot(f.ctx(), &pb.SnapshotRequest{})
	wantOK(t, err)
	_, err = first.Recv() // the client does not read on, and more is left than the connection takes
	wantOK(t, err)
	second, err := f.maintenance.Snapshot(f.ctx(), &pb.SnapshotRequest{})
	wantOK(t, err)
	_, err = second.Recv()
	wantStatus(t, err, status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+node.ErrSnapshotUnderWay.Error()))
}

// Our own service sends snapshots in our own format. It says their size from the first message on.
func TestOwnServiceSendsSnapshots(t *testing.T) {
	f := startFront(t)
	f.put("a", strings.Repeat("value", 10<<10))
	stream, err := leasekeeperv1.NewMembersClient(f.conn).Snapshot(f.ctx(), &leasekeeperv1.SnapshotRequest{})
	wantOK(t, err)
	var data []byte
	var size int64
	for {
		resp, err := stream.Recv()
		if err == io.EOF {
			break
		}
		wantOK(t, err)
		if size = resp.Size; size == 0 {
			t.Fatal("a message without the size")
		}
		data = append(data, resp.Data...)
	}
	wantEqual(t, "size", int64(len(data)), size)
	restored, err := node.Restore(f.ctx(), vfs.Default, bytes.NewReader(data), filepath.Join(t.TempDir(), "new"), node.RestoreOptions{Now: time.Now()})
	wantOK(t, err)
	wantEqual(t, "revision", restored.Was, 2)
}

// A client that leaves in the middle leaves no snapshot behind. Neither do clients that do not read.
func TestAbandonedSnapshotIsRemoved(t *testing.T) {
	f := startFront(t)
	for i := range 8 {
		f.put(fmt.Sprint(i), strings.Repeat(fmt.Sprint(i, time.Now()), 20<<10))
	}
	ctx, leave := context.WithCancel(f.ctx())
	stream, err := f.maintenance.Snapshot(ctx, &pb.SnapshotRequest{})
	wantOK(t, err)
	_, err = stream.Recv()
	wantOK(t, err)
	leave()
	for {
		stream, err = f.maintenance.Snapshot(f.ctx(), &pb.SnapshotRequest{})
		wantOK(t, err)
		if _, err = stream.Recv(); status.Code(err) != codes.ResourceExhausted { // the first one is not over yet
			break
		}
	}
	wantOK(t, err)
	own, err := leasekeeperv1.NewMembersClient(f.conn).Snapshot(f.ctx(), &leasekeeperv1.SnapshotRequest{})
	wantOK(t, err)
	_, err = own.Recv()
	wantOK(t, err)
	// The cleanup stops the server while the other clients do not read. goleak finds goroutines that remain.
}

func TestMoveLeaderToThePresentLeaderSucceeds(t *testing.T) {
	f := startFront(t)
	resp, err := f.maintenance.MoveLeader(f.ctx(), &pb.MoveLeaderRequest{TargetID: f.node.Header().MemberID})
	wantOK(t, err)
	f.header(resp.Header, 1)
}

func TestDowngradeCancelSucceeds(t *testing.T) {
	f := startFront(t)
	resp, err := f.maintenance.Downgrade(f.ctx(), &pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL})
	wantOK(t, err)
	f.header(resp.Header, 1)
	if !strings.HasPrefix(EtcdVersion, resp.Version+".") {
		t.Errorf("the cluster speaks %q, its members %q", resp.Version, EtcdVersion)
	}
}

func TestUnsupportedMaintenanceIsRefused(t *testing.T) {
	f := startFront(t)
	_, err := f.maintenance.MoveLeader(f.ctx(), &pb.MoveLeaderRequest{TargetID: 1})
	wantStatus(t, err, rpctypes.ErrGRPCBadLeaderTransferee)
	for _, action := range []pb.DowngradeRequest_DowngradeAction{pb.DowngradeRequest_VALIDATE, pb.DowngradeRequest_ENABLE} {
		_, err = f.maintenance.Downgrade(f.ctx(), &pb.DowngradeRequest{Action: action, Version: "3.6.0"})
		wantStatus(t, err, rpctypes.ErrGRPCInvalidDowngradeTargetVersion)
	}
	_, err = f.maintenance.Downgrade(f.ctx(), &pb.DowngradeRequest{Action: 9})
	wantStatus(t, err, rpctypes.ErrGRPCInvalidDowngradeTargetVersion)
}
