package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// needsBoth skips a test of etcd and our server together if -target leaves out one of them. The default leaves out none.
func needsBoth(t *testing.T) {
	t.Helper()
	t.Parallel()
	if len(chosen(etcd)) == 0 || len(chosen(leasekeeper)) == 0 {
		t.Skip("-target leaves out etcd or leasekeeper, and the test needs both")
	}
}

// execute runs a program until it ends.
func execute(t *testing.T, program string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errors strings.Builder
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = ctlEnvironment(), &out, &errors
	err = cmd.Run()
	return out.String(), errors.String(), err
}

func mustExecute(t *testing.T, program string, args ...string) string {
	t.Helper()
	stdout, stderr, err := execute(t, program, args...)
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", filepath.Base(program), args, err, stderr)
	}
	return stdout
}

// snapshotStatus is what `etcdutl snapshot status` says.
type snapshotStatus struct {
	Hash      uint32
	Revision  int64
	TotalKey  int
	TotalSize int64
	Version   string
}

// saveSnapshot saves a snapshot with etcdctl and looks at it with etcdutl.
func (s *server) saveSnapshot() (path string, st snapshotStatus) {
	s.t.Helper()
	path = filepath.Join(s.t.TempDir(), "snapshot")
	s.mustCtl("snapshot", "save", path)
	wantOK(s.t, "status", json.Unmarshal([]byte(mustExecute(s.t, binaries.etcdutl, "snapshot", "status", path, "-w", "json")), &st))
	return path, st
}

// fill makes a history: versions, deletes, transactions, leases that are there and that have ended, and a compaction in the
// middle. It returns the revisions that can still be read.
func (st store) fill() (first, last int64) {
	st.s.t.Helper()
	kept, ended := st.grant(3600).ID, st.grant(600).ID
	st.put("before", "1")
	st.put("gone/before", "1")
	for i := range 5 {
		st.put("counter", strconv.Itoa(i))
		st.put(fmt.Sprint("leased/", i), "v", clientv3.WithLease(kept))
		st.put(fmt.Sprint("ended/", i), "v", clientv3.WithLease(ended))
	}
	st.delete("gone/before")
	st.put("before\x00nul", strings.Repeat("x", 5000))
	first = st.revision()
	_, err := st.c.Compact(st.s.context(), first)
	wantOK(st.s.t, "compact", err)
	st.put("counter", "more")
	_, err = st.c.Txn(st.s.context()).Then(clientv3.OpPut("t1", "1"), clientv3.OpPut("t2", "2"), clientv3.OpDelete("leased/0")).Commit()
	wantOK(st.s.t, "transaction", err)
	st.put("gone", "1")
	st.delete("gone")
	st.revoke(ended)
	st.put("gone/before", "again", clientv3.WithLease(kept))
	return first, st.revision()
}

// history returns everything that can be read: the keys at each revision, and the events that a watcher receives.
func (st store) history(first, last int64) string {
	st.s.t.Helper()
	var text strings.Builder
	for rev := first; rev <= last; rev++ {
		fmt.Fprintf(&text, "at %d\n%s\n", rev, show(st.get("\x00", clientv3.WithFromKey(), clientv3.WithRev(rev)).Kvs...))
	}
	ctx, cancel := context.WithCancel(st.s.context())
	defer cancel()
	for resp := range st.c.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(first)) {
		wantOK(st.s.t, "watch", resp.Err())
		done := false
		for _, e := range resp.Events {
			fmt.Fprintf(&text, "%s %s\n", e.Type, show(e.Kv))
			done = e.Kv.ModRevision == last
		}
		if done {
			break
		}
	}
	return text.String()
}

// leases returns all leases with their keys.
func (st store) leases() string {
	st.s.t.Helper()
	list, err := st.c.Leases(st.s.context())
	wantOK(st.s.t, "leases", err)
	var lines []string
	for _, l := range list.Leases {
		left, err := st.c.TimeToLive(st.s.context(), l.ID, clientv3.WithAttachedKeys())
		wantOK(st.s.t, "time to live", err)
		slices.SortFunc(left.Keys, func(a, b []byte) int { return strings.Compare(string(a), string(b)) })
		lines = append(lines, fmt.Sprintf("%x %ds %q", uint64(l.ID), left.GrantedTTL, left.Keys))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// restoreIntoEtcd makes an etcd from a snapshot, with etcdutl, and starts it.
func restoreIntoEtcd(t *testing.T, path string) *server {
	t.Helper()
	s := newServer(t, etcd)
	s.grpcAddr, s.peerAddr = freeAddr(t), freeAddr(t)
	s.httpAddr = s.grpcAddr
	peer := "http://" + s.peerAddr
	mustExecute(t, binaries.etcdutl, "snapshot", "restore", path, "--data-dir", s.dir, "--name", "one", "--initial-cluster", "one="+peer, "--initial-advertise-peer-urls", peer)
	s.start()
	return s
}

// A snapshot of our server, alone and in a cluster, restores into etcd with etcd's own tool: keys with all that can be read of
// their history, leases with their keys, and the compacted revision. etcd computes the same hash of what it restored as its
// tool does of the file.
func TestEtcdRestoresSnapshotOfLeasekeeper(t *testing.T) {
	needsBoth(t)
	for _, target := range chosen(leasekeeper, follower) {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, target)
			st := s.store()
			first, last := st.fill()
			_, held := s.acquire("job", false, "HELD")
			last++
			path, status := s.saveSnapshot()
			wantEqual(t, "revision", status.Revision, last)
			wantEqual(t, "keys", status.TotalKey, int(st.get("\x00", clientv3.WithFromKey(), clientv3.WithCountOnly()).Count))
			wantEqual(t, "version", status.Version, "3.6.0")
			members, err := s.stubs().MemberList(s.context(), &pb.MemberListRequest{})
			wantOK(t, "members", err)
			wantEqual(t, "members", savedMembers(t, path), shownMembers(members.Members))
			// The hash says whether two snapshots are of one state.
			eventually(t, waitLimit, "two snapshots with one hash", func() bool {
				_, a := s.saveSnapshot()
				_, b := s.saveSnapshot()
				return a.Hash == b.Hash
			})
			want, leases := st.history(first, last), st.leases()

			e := restoreIntoEtcd(t, path)
			restored := e.store()
			wantEqual(t, "history", restored.history(first, last), want)
			wantEqual(t, "leases", restored.leases(), leases)
			wantEqual(t, "revision", restored.revision(), last)
			_, err = restored.c.Get(e.context(), "counter", clientv3.WithRev(first-1))
			wantEqual(t, "the past is compacted", err, rpctypes.ErrCompacted)
			var file struct{ Hash uint32 }
			wantOK(t, "hash", json.Unmarshal([]byte(mustExecute(t, binaries.etcdutl, "hashkv", path, "-w", "json")), &file))
			hash, err := e.stubs().HashKV(e.context(), &pb.HashKVRequest{Revision: last})
			wantOK(t, "hash of etcd", err)
			wantEqual(t, "hash", hash.Hash, file.Hash)
			wantEqual(t, "compacted", hash.CompactRevision, first)
			// The end of a lease deletes its keys there too.
			id, err := strconv.ParseInt(held.Result.Lease, 10, 64)
			wantOK(t, "lease", err)
			restored.revoke(clientv3.LeaseID(id))
			wantEqual(t, "the name", restored.get("job/", clientv3.WithPrefix()).Count, 0)
			wantEqual(t, "next revision", restored.revision(), last+1)
		})
	}
}

// savedMembers returns the members in a snapshot.
func savedMembers(t *testing.T, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	wantOK(t, "opening", err)
	defer db.Close()
	var all []*pb.Member
	wantOK(t, "members", db.View(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("members")).ForEach(func(k, v []byte) error {
			m := new(struct {
				ID                   uint64
				Name                 string
				PeerURLs, ClientURLs []string
			})
			if err := json.Unmarshal(v, m); err != nil {
				return err
			}
			wantEqual(t, "id", string(k), strconv.FormatUint(m.ID, 16))
			all = append(all, &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs})
			return nil
		})
	}))
	return shownMembers(all)
}

func shownMembers(all []*pb.Member) string {
	var lines []string
	for _, m := range all {
		lines = append(lines, fmt.Sprintf("%016x %s %s %s", m.ID, m.Name, m.PeerURLs, m.ClientURLs))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// importInto makes our server's data directory from a file of etcd, and starts the server.
func importInto(t *testing.T, file string) (s *server, printed string) {
	t.Helper()
	s = newServer(t, leasekeeper)
	s.grpcAddr, s.httpAddr, s.peerAddr = freeAddr(t), freeAddr(t), freeAddr(t)
	printed = mustExecute(t, s.binary(), "import", "--from-etcd", file, "--data-dir", s.dir, "--hold-off", "0s")
	s.start()
	return s, printed
}

// Our server imports a snapshot of etcd, and the file of a stopped one: the keys are the same, down to their revisions and
// versions, and so are the leases. New revisions are far higher.
func TestImportKeepsKeysAndLeasesOfEtcd(t *testing.T) {
	needsBoth(t)
	e := startServer(t, etcd)
	st := e.store()
	_, last := st.fill()
	want, leases := st.all(), st.leases()
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	e.mustCtl("snapshot", "save", snapshot)
	file := filepath.Join(e.dir, "member", "snap", "db")
	stdout, stderr, err := execute(t, binaries.server[leasekeeper], "import", "--from-etcd", file, "--data-dir", filepath.Join(t.TempDir(), "new"))
	if err == nil || !strings.Contains(stderr, "is in use by another process: stop etcd") {
		t.Errorf("while etcd runs: %v, %q, %q", err, stdout, stderr)
	}
	e.stop()
	for _, c := range []struct{ name, file, says string }{
		{"snapshot", snapshot, "1 lease\n"},
		{"data directory", file, "the file has no checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, printed := importInto(t, c.file)
			if !strings.Contains(printed, c.says) || !strings.Contains(printed, fmt.Sprintf("(%d in the data)", last)) {
				t.Errorf("import printed %q", printed)
			}
			got := s.store()
			wantEqual(t, "keys", got.all(), want)
			wantEqual(t, "leases", got.leases(), leases)
			_, err := got.c.Get(s.context(), "counter", clientv3.WithRev(last))
			wantEqual(t, "the past is compacted", err, rpctypes.ErrCompacted)
			next := got.put("counter", "next")
			if next.Header.Revision < time.Now().Add(-time.Hour).Unix()<<20 {
				t.Errorf("the next revision is %d", next.Header.Revision)
			}
			list, err := got.c.Leases(s.context())
			wantOK(t, "leases", err)
			got.revoke(list.Leases[0].ID)
			wantEqual(t, "keys of the lease", got.get("leased/", clientv3.WithPrefix()).Count, 0)
			s.acquire("job", false, "HELD")
		})
	}
}

// What goes from our server to etcd and back is the same.
func TestExportAndImportAreInverse(t *testing.T) {
	needsBoth(t)
	s := startServer(t, leasekeeper)
	st := s.store()
	st.fill()
	_, held := s.acquire("job", false, "HELD")
	path, _ := s.saveSnapshot()
	again, _ := importInto(t, path)
	wantEqual(t, "keys", again.store().all(), st.all())
	wantEqual(t, "leases", again.store().leases(), st.leases())
	// The holder goes on under its token, which is the revision of its key.
	kvs := again.store().get("job/", clientv3.WithPrefix()).Kvs
	wantEqual(t, "token", strconv.FormatInt(kvs[0].CreateRevision, 10), held.Result.Token)
}

// The users, roles and passwords of an etcd with authentication enabled are imported, and the new server checks requests from
// the start.
func TestImportKeepsUsersOfEtcd(t *testing.T) {
	needsBoth(t)
	e := startServer(t, etcd)
	for _, args := range []string{
		"put k v", "user add root:secret", "user grant-role root root", "user add u:word", "role add r", "role grant-permission r read k",
		"user grant-role u r", "auth enable",
	} {
		e.mustCtl(strings.Fields(args)...)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	e.mustCtl("snapshot", "save", snapshot, "--user", "root:secret")
	s, printed := importInto(t, snapshot)
	if !strings.Contains(printed, "2 users, 1 role; access is enabled") {
		t.Errorf("import printed %q", printed)
	}
	s.wantCtlError(1, "etcdserver: user name is empty", "get", "k")
	s.mustCtl("get", "k", "--user", "u:word")
	s.wantCtlError(1, "etcdserver: permission denied", "put", "k", "w", "--user", "u:word")
	s.mustCtl("put", "k", "w", "--user", "root:secret")
}
