package etcdfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/etcd/api/v3/authpb"
	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

var members = []Member{
	{ID: 0x1a, Name: "one", PeerURLs: []string{"http://a:2380"}, ClientURLs: []string{"http://a:2379"}},
	{ID: 0x2b, Name: "two", PeerURLs: []string{"http://b:2380"}, Learner: true},
}

func enough() error { return nil }

// save exports the world into a file, with its checksum. The world ends: its database is closed before the file is complete,
// as that of a copy is, so that its memory cannot be in use any longer.
func (w *world) save(path string) {
	writer, err := Create(path+".tmp", enough)
	must(err)
	must(Export(context.Background(), w.db, writer, members))
	must(w.db.Close())
	image, err := writer.Image()
	must(err)
	out, err := os.Create(path)
	must(err)
	n, err := image.WriteTo(context.Background(), out)
	must(err)
	if n != image.Size() {
		panic(fmt.Sprintf("%d bytes, announced were %d", n, image.Size()))
	}
	must(errors.Join(out.Close(), image.Close()))
	if _, err := os.Stat(path + ".tmp"); !errors.Is(err, os.ErrNotExist) {
		panic(fmt.Sprintf("the temporary file is left: %v", err))
	}
}

// opened opens a file. The caller closes it.
func opened(path string) *File {
	f, err := Open(context.Background(), path, nil)
	must(err)
	return f
}

// changes returns what the file has: changes before a revision by revision, sorted, and the others in order.
func (f *File) changes(compacted int64) (old map[int64][]string, later []string) {
	old = make(map[int64][]string)
	var last revision
	must(f.each(context.Background(), bucketKeys, func(k, v []byte) error {
		at, deleted, err := parseRevision(k)
		must(err)
		if !at.after(last) || at.main == last.main && at.sub != last.sub+1 || at.main != last.main && at.sub != 0 {
			panic(fmt.Sprintf("%v follows %v", at, last))
		}
		last = at
		kv, err := parseKV(k, v)
		must(err)
		c := change{at.main, deleted, keyspace.KV{Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, Version: kv.Version, Lease: kv.Lease}}
		if !deleted && kv.ModRevision != at.main {
			panic(fmt.Sprintf("%v says that it is of revision %d", c, kv.ModRevision))
		}
		if at.main < compacted {
			old[at.main] = append(old[at.main], c.String())
		} else {
			later = append(later, c.String())
		}
		return nil
	}))
	for _, of := range old {
		slices.Sort(of)
	}
	return old, later
}

// Whatever happened to a keyspace, its export has the changes and the leases that etcd would have kept, and an import of
// that has the same keys and leases. It does not matter how far the sweeping of ended leases and the trimming have come.
func TestExportAndImportKeepWhatEtcdKeeps(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		w := newWorld()
		keys := rapid.SampledFrom([]string{"a", "a\x00", "a\x00b", "b", "c", "names/x/1", "\xff", "\x00"})
		ids := rapid.SampledFrom([]int64{1, 2, -3, 1 << 62})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				lease := int64(0)
				if len(w.leases) > 0 && rapid.Bool().Draw(t, "attached") {
					lease = rapid.SampledFrom(slices.Sorted(maps.Keys(w.leases))).Draw(t, "lease")
				}
				w.put(keys.Draw(t, "key"), rapid.StringN(0, 4, 8).Draw(t, "value"), lease)
			},
			"put many": func(t *rapid.T) {
				w.write(func(writer *keyspace.Writer, _ *pebble.Batch) {
					must(writer.Group(func() error {
						for _, key := range rapid.SliceOfNDistinct(keys, 2, 5, func(k string) string { return k }).Draw(t, "keys") {
							if _, err := writer.Put(keyspace.PutRequest{Key: []byte(key), Value: []byte("many")}); err != nil {
								return err
							}
						}
						return nil
					}))
				})
			},
			"delete": func(t *rapid.T) { w.remove(keys.Draw(t, "key"), keys.Draw(t, "end")) },
			"grant": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if w.leases[id] == nil {
					w.grant(id, time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms"))*time.Millisecond)
				}
			},
			"end": func(t *rapid.T) {
				if id := ids.Draw(t, "id"); w.leases[id] != nil {
					w.end(id)
				}
			},
			"compact": func(t *rapid.T) {
				if first := max(w.compacted+1, 1); first <= w.revision() {
					w.compact(rapid.Int64Range(first, w.revision()).Draw(t, "to"))
				}
			},
			"sweep and trim": func(t *rapid.T) {
				w.write(func(writer *keyspace.Writer, _ *pebble.Batch) {
					_, err := writer.Sweep(rapid.IntRange(0, 3).Draw(t, "keys"))
					must(err)
					_, err = writer.Trim(rapid.IntRange(0, 9).Draw(t, "keys to trim"))
					must(err)
				})
			},
		})
		path := filepath.Join(dir, fmt.Sprint(n))
		old, later := w.retained()
		final := list(w.state(w.revision()))
		revision := w.revision()
		w.save(path)
		f := opened(path)
		defer func() { must(errors.Join(f.Close(), os.Remove(path))) }()
		gotOld, gotLater := f.changes(max(w.compacted, 0))
		if fmt.Sprint(gotOld) != fmt.Sprint(old) || fmt.Sprint(gotLater) != fmt.Sprint(later) {
			t.Fatalf("compacted to %d, the file has\n%v\n%v\nwant\n%v\n%v", w.compacted, gotOld, strings.Join(gotLater, "\n"), old, strings.Join(later, "\n"))
		}
		if got := f.compacted(); got != max(w.compacted, 0) || !f.Checked {
			t.Fatalf("the file is compacted to %d, want %d; checked %v", got, w.compacted, f.Checked)
		}
		w.checkImport(t, f, final, revision)
	})
}

// checkImport imports a file into a new database and compares it with the model.
func (w *world) checkImport(t *rapid.T, f *File, final string, revision int64) {
	db := memoryDB()
	defer func() { must(db.Close()) }()
	found, err := Import(context.Background(), f, db, nil)
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	if found.Revision != revision || found.Leases != len(w.leases) || found.Unbound != 0 || !found.Checked {
		t.Fatalf("found %+v, want revision %d and %d leases", found, revision, len(w.leases))
	}
	generations := make(map[uint64]bool)
	n := 0
	must(record.Leases(db, func(m *logpb.Lease) bool {
		n++
		seconds := (w.leases[m.Id].ttl + time.Second - 1) / time.Second
		if time.Duration(m.TtlNs) != seconds*time.Second || generations[m.Generation] || m.Generation == 0 || m.Cleared != m.Generation {
			t.Fatalf("lease %v, want a TTL of %v", m, w.leases[m.Id].ttl)
		}
		generations[m.Generation] = true
		return true
	}))
	store, err := keyspace.Open(db, nil)
	must(err)
	if store.Revision() != revision || n != len(w.leases) {
		t.Fatalf("the new keyspace is at %d with %d leases", store.Revision(), n)
	}
	result, err := store.Range(context.Background(), keyspace.RangeRequest{Key: []byte{0}, End: []byte{0}})
	must(err)
	got := make(map[string]change)
	for _, kv := range result.KVs {
		got[string(kv.Key)] = change{kv.ModRevision, false, kv}
	}
	if list(got) != final || found.Keys != len(got) {
		t.Fatalf("imported\n%swant\n%s", list(got), final)
	}
	if _, err := store.Hash(context.Background()); err != nil {
		t.Fatalf("the new keyspace cannot be read: %v", err)
	}
}

// The same state makes the same file, so that its hash can be compared.
func TestEqualStatesMakeEqualFiles(t *testing.T) {
	dir := t.TempDir()
	var sums [2][sha256.Size]byte
	for i := range sums {
		w := newWorld()
		w.grant(7, time.Minute)
		for n := range 3000 {
			w.put(fmt.Sprintf("key %d", n%700), strings.Repeat("v", n), 7*int64(n%2))
		}
		w.compact(1500)
		path := filepath.Join(dir, fmt.Sprint(i))
		w.save(path)
		data, err := os.ReadFile(path)
		must(err)
		sums[i] = sha256.Sum256(data)
	}
	if sums[0] != sums[1] {
		t.Error("the files differ")
	}
}

// A file that is no database of etcd, or is damaged, is refused with a sentence. It never ends the process.
func TestDamagedFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	w := newWorld()
	w.grant(7, time.Minute)
	for n := range 300 {
		w.put(fmt.Sprint("key ", n), strings.Repeat("v", 100), 7)
	}
	good := filepath.Join(dir, "good")
	w.save(good)
	snapshot, err := os.ReadFile(good)
	must(err)
	plain := snapshot[:len(snapshot)-sha256.Size]
	attempt := func(data []byte) error {
		path := filepath.Join(dir, "bad")
		must(os.WriteFile(path, data, 0o600))
		f, err := Open(t.Context(), path, nil)
		if err != nil {
			return err
		}
		defer func() { must(f.Close()) }()
		db := memoryDB()
		defer func() { must(db.Close()) }()
		_, err = Import(t.Context(), f, db, nil)
		return err
	}
	if err := errors.Join(attempt(snapshot), attempt(plain)); err != nil {
		t.Fatalf("the good file: %v", err)
	}
	for _, c := range []struct {
		what string
		data []byte
		want string
	}{
		{"empty", nil, "is not a database of etcd"},
		{"text", []byte(strings.Repeat("this is no database\n", 1001)), "is not a database of etcd"},
		{"cut off", plain[:len(plain)/2], "the file is damaged"},
		{"with a wrong checksum", append(slices.Clone(plain), make([]byte, sha256.Size)...), "do not match its checksum"},
		{"our own format", append([]byte("VERSION\x00"), make([]byte, 5000)...), "use `leasekeeper snapshot restore`"},
	} {
		if err := attempt(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	// Without a checksum, damage of a value cannot be noticed, but damage of the structure never crashes.
	refused := 0
	for page := 0; page < len(plain); page += pageSize {
		for _, at := range []int{0, 8, 10, 16, 20, 24, 28, 40} { // of the header and the first records of a page
			data := slices.Clone(plain)
			data[page+at] ^= 0xff
			if attempt(data) != nil {
				refused++
			}
		}
	}
	if refused < 30 {
		t.Errorf("only %d damaged files were refused", refused)
	}
}

// An export ends where space would run out, and leaves no file behind.
func TestExportEndsWithoutRoom(t *testing.T) {
	w := newWorld()
	defer func() { must(w.db.Close()) }()
	for n := range 20 {
		w.put(fmt.Sprint("key ", n), strings.Repeat("v", 1<<20), 0)
	}
	w.compact(w.revision())
	path := filepath.Join(t.TempDir(), "file")
	full, looks := errors.New("full"), 0
	writer, err := Create(path, func() error {
		if looks++; looks > 2 {
			return full
		}
		return nil
	})
	must(err)
	if err := Export(t.Context(), w.db, writer, nil); !errors.Is(err, full) {
		t.Errorf("export: %v", err)
	}
	must(writer.Discard())
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// Users, roles and the auth revision survive an export and an import, whether authentication is enabled or not. Rights over
// names do not.
func TestUsersAndRolesSurviveExportAndImport(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		rules := access.Rules{Enabled: enabled, Revision: 7}
		if enabled {
			rules.Since = 7
		}
		permissions := []access.Permission{{Kind: access.Read, Key: "a", End: "b"}, {Kind: access.ReadWrite, Key: "c", End: "\x00"}, {Kind: access.Write, Key: "c"}}
		policy := access.Restore(rules,
			[]*access.User{{Name: "cert", NoPassword: true}, {Name: "root", Hash: []byte("H"), Roles: []string{"r", "root"}, Since: 3}},
			[]*access.Role{{Name: "r", Permissions: permissions, Rights: []access.Right{{Prefix: "n", Rights: access.Hold}}}})
		w := newWorld()
		w.write(func(_ *keyspace.Writer, b *pebble.Batch) { record.PutPolicy(b, nil, policy) })
		path := filepath.Join(t.TempDir(), "file")
		w.save(path)
		f, db := opened(path), memoryDB()
		found, err := Import(t.Context(), f, db, nil)
		must(err)
		if found.Users != 2 || found.Roles != 1 || found.Access != enabled {
			t.Errorf("found %+v", found)
		}
		got, err := record.LoadPolicy(db)
		must(err)
		if got.Rules() != rules || len(got.Users()) != 2 || len(got.Roles()) != 1 {
			t.Fatalf("imported %+v, %+v, %+v", got.Rules(), got.Users(), got.Roles())
		}
		root, role := got.User("root"), got.Role("r")
		if string(root.Hash) != "H" || !slices.Equal(root.Roles, []string{"r", "root"}) || root.NoPassword || !got.User("cert").NoPassword {
			t.Errorf("root is %+v, cert %+v", root, got.User("cert"))
		}
		if !slices.Equal(role.Permissions, permissions) || len(role.Rights) != 0 {
			t.Errorf("the role is %+v", role)
		}
		level := new(logpb.Level)
		if _, err := record.Load(db, record.KeyLevel, level); err != nil || level.Level != uint32(gate.Access) {
			t.Errorf("version %d is in use: %v", level.Level, err)
		}
		must(errors.Join(f.Close(), db.Close()))
	}
}

// A cluster that never had users needs no newer version than before.
func TestImportWithoutUsersNeedsNoNewerVersion(t *testing.T) {
	w := newWorld()
	path := filepath.Join(t.TempDir(), "file")
	w.save(path)
	f, db := opened(path), memoryDB()
	_, err := Import(t.Context(), f, db, nil)
	must(err)
	if there, err := record.Load(db, record.KeyLevel, new(logpb.Level)); there || err != nil {
		t.Errorf("a version is in use: %v", err)
	}
	must(errors.Join(f.Close(), db.Close()))
}

// Etcd keeps two permissions for one range if others begin with the same key. They add up, and so they do here.
func TestImportAddsUpPermissionsForOneRange(t *testing.T) {
	m := &authpb.Role{Name: []byte("r")}
	for _, p := range []access.Permission{{Kind: access.Read, Key: "k", End: "l"}, {Kind: access.Read, Key: "k", End: "m"}, {Kind: access.Write, Key: "k", End: "l"}, {Kind: access.Read, Key: "a"}} {
		m.KeyPermission = append(m.KeyPermission, &authpb.Permission{PermType: authpb.Permission_Type(p.Kind), Key: []byte(p.Key), RangeEnd: []byte(p.End)})
	}
	want := []access.Permission{{Kind: access.Read, Key: "a"}, {Kind: access.ReadWrite, Key: "k", End: "l"}, {Kind: access.Read, Key: "k", End: "m"}}
	if got := permissionsOf(m); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// A user or a role that cannot be read is damage: without it others would have other rights.
func TestImportRefusesDamagedUsers(t *testing.T) {
	for _, bucket := range [][]byte{bucketUsers, bucketRoles} {
		w := newWorld()
		path := filepath.Join(t.TempDir(), "file")
		writer, err := Create(path, enough)
		must(err)
		must(writer.put(bucket, []byte("root"), []byte{1}))
		must(writer.commit())
		must(writer.db.Close())
		f, db := opened(path), memoryDB()
		_, err = Import(t.Context(), f, db, nil)
		if damage := (*DamagedError)(nil); !errors.As(err, &damage) {
			t.Errorf("%s: %v", bucket, err)
		}
		must(errors.Join(f.Close(), db.Close(), w.db.Close()))
	}
}

// Records that etcd or its tools leave are understood: a key whose lease is gone, and a revision that was raised.
func TestImportUnderstandsLeftovers(t *testing.T) {
	w := newWorld()
	w.put("k", "v", 0)
	path := filepath.Join(t.TempDir(), "file")
	writer, err := Create(path, enough)
	must(err)
	kv := wireKV(keyspace.KV{Key: []byte("orphan"), Value: []byte("v"), CreateRevision: 5, ModRevision: 7, Version: 2, Lease: 99})
	must(writer.append(7, false, kv))
	must(writer.appendText(1000, false, nil))
	must(writer.putLease(Lease{ID: 3, TTL: 0}))
	must(writer.commit())
	must(writer.db.Close())
	f := opened(path)
	db := memoryDB()
	found, err := Import(t.Context(), f, db, nil)
	must(err)
	if found != (Imported{Keys: 1, Leases: 1, Unbound: 1, Revision: 1000}) {
		t.Errorf("found %+v", found)
	}
	must(record.Leases(db, func(m *logpb.Lease) bool {
		if time.Duration(m.TtlNs) != time.Second {
			t.Errorf("lease %v", m)
		}
		return true
	}))
	must(errors.Join(f.Close(), db.Close(), w.db.Close()))
}

// More leases than a log entry has positions have different generations.
func TestImportedLeasesHaveDifferentGenerations(t *testing.T) {
	const many = grantsPerEntry*2 + 5
	path := filepath.Join(t.TempDir(), "file")
	writer, err := Create(path, enough)
	must(err)
	for id := range int64(many) {
		must(writer.putLease(Lease{ID: id + 1, TTL: 10}))
	}
	must(writer.commit())
	must(writer.db.Close())
	f := opened(path)
	db := memoryDB()
	found, err := Import(t.Context(), f, db, nil)
	must(err)
	var last uint64
	must(record.Leases(db, func(m *logpb.Lease) bool {
		if m.Generation <= last {
			t.Fatalf("generation %d follows %d", m.Generation, last)
		}
		last = m.Generation
		return true
	}))
	applied := new(logpb.Applied)
	_, err = record.Load(db, record.KeyApplied, applied)
	must(err)
	if found.Leases != many || applied.Index != last>>16 || applied.Index != 3 {
		t.Errorf("found %+v, applied %v, last generation %x", found, applied, last)
	}
	must(errors.Join(f.Close(), db.Close()))
}
