package rightsmatrix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
)

// scene is one stream of the user half, or a call of it that waits. Its things have numbers of their own.
type scene struct {
	*world
	kind    streamKind
	what    string // for messages
	method  *method
	path    string // of a gateway; "" for gRPC
	client  *client
	token   string
	number  int64   // of what root makes
	own     int64   // of half's lease, if it has another one
	another *stream // of root, in the same queue
	stream  *stream
}

// streamKind is a kind of stream. Its steps run one after another, for all streams together: begin opens the stream and sees it
// work. Then the token of half ends, and live sees the stream work. Then the right is withdrawn, and denied sees what half
// receives.
type streamKind struct {
	name, method        string
	begin, live, denied func(*scene) error
}

// streamKinds are all kinds of streams that belong to a user with rights, and all calls that wait.
var streamKinds = []streamKind{
	{"renewal of a lease", pb.Lease_LeaseKeepAlive_FullMethodName,
		func(s *scene) error {
			return first(s.lease(s.number, "half/"), func() error { return s.opens(&pb.LeaseKeepAliveRequest{ID: s.number}) }, s.receives(ok))
		},
		func(s *scene) error { return s.asks(&pb.LeaseKeepAliveRequest{ID: s.number}, ok) },
		func(s *scene) error { return s.asks(&pb.LeaseKeepAliveRequest{ID: s.number}, denied) },
	},
	{"renewal of a lease without keys", pb.Lease_LeaseKeepAlive_FullMethodName, // which needs no right
		func(s *scene) error {
			return first(s.lease(s.number), func() error { return s.opens(&pb.LeaseKeepAliveRequest{ID: s.number}) }, s.receives(ok))
		},
		func(s *scene) error { return s.asks(&pb.LeaseKeepAliveRequest{ID: s.number}, ok) },
		func(s *scene) error {
			if s.deleted() {
				return s.asks(&pb.LeaseKeepAliveRequest{ID: s.number}, denied)
			}
			return s.asks(&pb.LeaseKeepAliveRequest{ID: s.number}, ok)
		},
	},
	{"watcher", pb.Watch_Watch_FullMethodName,
		func(s *scene) error { return first(s.opens(watcherOf(s.key("w"))), s.receives("created")) },
		func(s *scene) error { return first(s.put(s.key("w")), s.receives("1 events")) },
		func(s *scene) error { return first(s.put(s.key("w")), s.receives(denied)) },
	},
	{"second watcher of a stream", pb.Watch_Watch_FullMethodName,
		func(s *scene) error { return first(s.opens(watcherOf(s.key("w"))), s.receives("created")) },
		func(s *scene) error { return s.asks(watcherOf(s.key("v")), "created") },
		func(s *scene) error { return s.asks(watcherOf(s.key("u")), denied) },
	},
	{"lock that waits", v3lockpb.Lock_Lock_FullMethodName,
		func(s *scene) error { return s.beginsToWait(s.own) },
		func(s *scene) error { return s.anotherWaits() },
		func(s *scene) error { return s.takesNoTurn(unknownDenied) },
	},
	{"lock that waits by a lease of the server", v3lockpb.Lock_Lock_FullMethodName,
		func(s *scene) error { return s.beginsToWait(0) },
		func(s *scene) error { return s.anotherWaits() },
		func(s *scene) error { return s.takesNoTurn(unknownDenied) },
	},
	{"lock whose turn comes before", v3lockpb.Lock_Lock_FullMethodName,
		func(s *scene) error { return s.beginsToWait(s.own) },
		func(s *scene) error { return first(s.leave(), s.receives(ok)) },
		nil,
	},
	{"campaign that waits", v3electionpb.Election_Campaign_FullMethodName,
		func(s *scene) error { return s.beginsToWait(s.own) },
		func(s *scene) error { return s.anotherWaits() },
		func(s *scene) error { return s.takesNoTurn(unknownDenied) },
	},
	{"campaign whose turn comes before", v3electionpb.Election_Campaign_FullMethodName,
		func(s *scene) error { return s.beginsToWait(s.own) },
		func(s *scene) error { return first(s.leave(), s.receives(ok)) },
		nil,
	},
	{"observation of an election", v3electionpb.Election_Observe_FullMethodName,
		func(s *scene) error {
			return first(s.elect("half/e", s.number), func() error { return s.opens(&v3electionpb.LeaderRequest{Name: []byte(s.key("e"))}) }, s.receives(ok))
		},
		func(s *scene) error { return first(s.put(s.seat("e")), s.receives(ok)) },
		func(s *scene) error { return first(s.put(s.seat("e")), s.receives(unknownDenied)) },
	},
	{"observation of an election without a leader", v3electionpb.Election_Observe_FullMethodName,
		func(s *scene) error { return s.opens(&v3electionpb.LeaderRequest{Name: []byte(s.key("e"))}) },
		nil,
		func(s *scene) error { return first(s.elect("half/e", s.number), s.receives(unknownDenied)) },
	},
	{"claim that waits", leasekeeperv1.Leasekeeper_Acquire_FullMethodName,
		func(s *scene) error {
			return first(s.claim("root", "half/n", s.number), func() error { return s.opens(s.acquire()) }, s.receives("WAITING"))
		},
		nil,
		func(s *scene) error { return first(s.release(), s.receives(denied)) },
	},
	{"claim whose turn comes before", leasekeeperv1.Leasekeeper_Acquire_FullMethodName,
		func(s *scene) error {
			return first(s.claim("root", "half/n", s.number), func() error { return s.opens(s.acquire()) }, s.receives("WAITING"))
		},
		func(s *scene) error { return first(s.release(), s.receives("HELD")) },
		nil,
	},
	{"renewal of claims", leasekeeperv1.Leasekeeper_Renew_FullMethodName,
		func(s *scene) error {
			return first(s.claim("half", "half/n", s.number), func() error { return s.opens(s.renewal(1)) }, s.receives(ok))
		},
		func(s *scene) error { return s.asks(s.renewal(2), ok) },
		func(s *scene) error {
			return first(s.asks(s.renewal(3), "refused:DENIED"), func() error { return s.asks(s.renewal(4), "refused:DENIED") })
		},
	},
	{"claims in bulk", leasekeeperv1.Leasekeeper_Hold_FullMethodName,
		func(s *scene) error {
			return first(s.claim("root", "half/n", s.number), func() error { return s.opens(s.holds(1, "n", s.own)) }, s.receives("WAITING"))
		},
		func(s *scene) error { return s.asks(s.holds(2, "m", s.newNumber()), "HELD") },
		func(s *scene) error {
			return first(s.asks(s.holds(3, "l", s.newNumber()), denied), s.release, s.receives(denied))
		},
	},
	{"watch of names", leasekeeperv1.Leasekeeper_Watch_FullMethodName,
		func(s *scene) error {
			return first(s.opens(&leasekeeperv1.WatchRequest{Prefix: s.key("n")}), s.receives("listing"))
		},
		func(s *scene) error { return first(s.claim("root", "half/n", s.number), s.receivesChange) },
		func(s *scene) error { return first(s.release(), s.receives(denied)) },
	},
}

const (
	denied        outcome = "PermissionDenied"
	unknownDenied outcome = "Unknown(PermissionDenied)" // as etcd's Lock and Election say it
)

// first returns the error of the first step that fails.
func first(err error, steps ...func() error) error {
	for _, step := range steps {
		if err != nil {
			return err
		}
		err = step()
	}
	return err
}

// key is a key or name that half may use, of the number of this scene.
func (s *scene) key(kind string) string { return fmt.Sprint("half/", kind, s.number) }

// seat is root's key in the queue of an election or a lock.
func (s *scene) seat(kind string) string { return fmt.Sprintf("%s/%x", s.key(kind), s.number) }

func (s *scene) newNumber() int64 { return s.world.number.Add(1) }

// deleted reports whether half is no user anymore.
func (s *scene) deleted() bool { return s.leader.member.node.Access().User("half") == nil }

// opens opens the stream of the scene.
func (s *scene) opens(request proto.Message) (err error) {
	s.stream, err = s.client.open(s.context(), s.method, s.path, s.token, request)
	return err
}

// asks sends a message on the stream, and wants outcomes.
func (s *scene) asks(request proto.Message, want ...outcome) error {
	return first(s.stream.send(request), s.receives(want...))
}

// receives wants outcomes of the next answers.
func (s *scene) receives(want ...outcome) func() error {
	return func() error {
		for _, want := range want {
			if got := s.stream.receive(); got != want {
				return fmt.Errorf("got %s, want %s", got, want)
			}
		}
		return nil
	}
}

// receivesChange wants a change of a name, behind the end of the listing.
func (s *scene) receivesChange() error {
	got := s.stream.receive()
	for got == "listing" {
		got = s.stream.receive()
	}
	if got != "1 events" {
		return fmt.Errorf("got %s, want a change", got)
	}
	return nil
}

// put changes a key as root. The key keeps its lease.
func (s *scene) put(key string) error {
	ctx, cancel := s.as("root")
	defer cancel()
	kv := pb.NewKVClient(s.leader.conn)
	resp, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte(key)})
	if err == nil {
		_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte("v"), IgnoreLease: len(resp.Kvs) > 0})
	}
	return err
}

// release ends root's tenure of the name n.
func (s *scene) release() error {
	ctx, cancel := s.as("root")
	defer cancel()
	_, err := leasekeeperv1.NewLeasekeeperClient(s.leader.conn).Release(ctx, &leasekeeperv1.ReleaseRequest{Name: s.key("n"), Lease: s.number})
	return err
}

func watcherOf(key string) proto.Message {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)}}}
}

func (s *scene) acquire() proto.Message {
	return &leasekeeperv1.AcquireRequest{Name: s.key("n"), Lease: s.own, TtlMs: 600_000, Wait: true, Holder: &leasekeeperv1.Holder{Id: "half"}}
}

func (s *scene) renewal(number uint64) proto.Message {
	return &leasekeeperv1.RenewRequest{Number: number, Leases: []int64{s.number}}
}

func (s *scene) holds(number uint64, kind string, lease int64) proto.Message {
	return &leasekeeperv1.HoldRequest{Holder: &leasekeeperv1.Holder{Id: "half"}, Claims: []*leasekeeperv1.HoldClaim{
		{Number: number, Name: s.key(kind), Lease: lease, TtlMs: 600_000, Wait: true},
	}}
}

// inQueue is a request for the lock or the election of the scene by a lease; 0 for one of the server.
func (s *scene) inQueue(lease int64) proto.Message {
	if s.method.name == v3lockpb.Lock_Lock_FullMethodName {
		return &v3lockpb.LockRequest{Name: []byte(s.key("q")), Lease: lease}
	}
	return &v3electionpb.CampaignRequest{Name: []byte(s.key("q")), Lease: lease, Value: []byte("v")}
}

// beginsToWait makes root own the lock or the election, and half wait for it by a lease.
func (s *scene) beginsToWait(lease int64) error {
	err := first(s.lease(s.number), func() error { return s.rootWaits(s.number) })
	if err == nil && s.another.receive() != ok {
		return fmt.Errorf("root does not get the lock")
	}
	if err == nil && lease != 0 {
		err = s.lease(lease)
	}
	return first(err, func() error { return s.opens(s.inQueue(lease)) }, func() error { return s.awaitsQueue(2) })
}

// rootWaits makes root wait in the queue of the scene.
func (s *scene) rootWaits(lease int64) (err error) {
	s.another, err = s.leader.open(s.context(), s.method, "", s.tokens["root"], s.inQueue(lease))
	return err
}

// anotherWaits makes root wait behind half.
func (s *scene) anotherWaits() error {
	return first(s.rootWaits(0), func() error { return s.awaitsQueue(3) })
}

// awaitsQueue waits until a number of clients are in the queue.
func (s *scene) awaitsQueue(n int64) error {
	ctx, cancel := s.as("root")
	defer cancel()
	for {
		resp, err := pb.NewKVClient(s.leader.conn).Range(ctx, &pb.RangeRequest{Key: []byte(s.key("q") + "/"), RangeEnd: []byte(s.key("q") + "0"), CountOnly: true})
		if err != nil || resp.Count == n {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// leave removes the owner of the lock or the election.
func (s *scene) leave() error {
	ctx, cancel := s.as("root")
	defer cancel()
	_, err := pb.NewKVClient(s.leader.conn).DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(s.seat("q"))})
	return err
}

// takesNoTurn wants half to be refused when its turn comes, and root behind it to have its turn at once.
func (s *scene) takesNoTurn(want outcome) error {
	err := first(s.leave(), s.receives(want))
	if got := s.another.receive(); err == nil && got != ok {
		err = fmt.Errorf("the next in the queue got %s", got)
	}
	return err
}

// scenesOf makes scenes of all kinds, through the leader and a follower, with each proof of the cluster, over gRPC and as JSON.
func (w *world) scenesOf(methods map[string]*method) (all []*scene) {
	w.t.Helper()
	for _, p := range w.proofsOf() {
		for _, through := range slices.Sorted(maps.Keys(w.through)) {
			c := w.dial(w.through[through], p.certificate("half"))
			for _, kind := range streamKinds {
				m := methods[kind.method]
				for _, path := range append([]string{""}, m.paths...) {
					what := fmt.Sprintf("%s by %s, over gRPC, through the %s", kind.name, p.name, through)
					all = append(all, &scene{
						world: w, kind: kind, what: strings.Replace(what, "gRPC", cmp.Or(path, "gRPC"), 1), method: m, path: path, client: c,
						token: p.token("half"), number: w.number.Add(1), own: w.number.Add(1),
					})
				}
			}
		}
	}
	return all
}

// play takes all scenes one step further, side by side, until one fails.
func play(what string, scenes []*scene, step func(streamKind) func(*scene) error) error {
	queue, failed := make(chan *scene, len(scenes)), make(chan error, len(scenes))
	for _, s := range scenes {
		queue <- s
	}
	close(queue)
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for s := range queue {
				if do := step(s.kind); do == nil || len(failed) > 0 {
					continue
				} else if err := do(s); err != nil {
					failed <- fmt.Errorf("%s, %s: %w", s.what, what, err)
				}
			}
		})
	}
	wait.Wait()
	close(failed)
	var all []error
	for err := range failed {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// withdrawal is a way in which half loses its rights, and gets them back.
type withdrawal struct {
	name           string
	take, giveBack func(*world)
}

var withdrawals = []withdrawal{
	{"the role was revoked", (*world).revokeHalf, (*world).grantHalf},
	{"permissions and rights were revoked",
		func(w *world) {
			w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
				return errorOf(auth.RoleRevokePermission(ctx, &pb.AuthRoleRevokePermissionRequest{Role: "half", Key: []byte("half/"), RangeEnd: []byte("half0")}))
			})
			w.manage(func(ctx context.Context, _ pb.AuthClient, names leasekeeperv1.LeasekeeperClient) error {
				return errorOf(names.RevokeRight(ctx, &leasekeeperv1.RevokeRightRequest{Role: "half", Prefix: "half/"}))
			})
		},
		func(w *world) {
			w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
				return errorOf(auth.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: "half", Perm: &authpb.Permission{
					PermType: authpb.READWRITE, Key: []byte("half/"), RangeEnd: []byte("half0"),
				}}))
			})
			w.manage(func(ctx context.Context, _ pb.AuthClient, names leasekeeperv1.LeasekeeperClient) error {
				return errorOf(names.GrantRight(ctx, &leasekeeperv1.GrantRightRequest{Role: "half", Prefix: "half/", Rights: []leasekeeperv1.NameRight{
					leasekeeperv1.NameRight_HOLD, leasekeeperv1.NameRight_WATCH, leasekeeperv1.NameRight_ADMINISTER,
				}}))
			})
		},
	},
	{"the user was deleted",
		func(w *world) {
			w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
				return errorOf(auth.UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: "half"}))
			})
		},
		func(w *world) {
			w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
				return errorOf(auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "half", Password: "half"}))
			})
			w.grantHalf()
		},
	},
}

func errorOf[T any](_ T, err error) error { return err }

// manage changes users and roles as root, whose token ends with the change if it is a JSON Web Token.
func (w *world) manage(change func(context.Context, pb.AuthClient, leasekeeperv1.LeasekeeperClient) error) {
	w.t.Helper()
	ctx, cancel := w.as("root")
	defer cancel()
	wantOK(w.t, change(ctx, pb.NewAuthClient(w.leader.conn), leasekeeperv1.NewLeasekeeperClient(w.leader.conn)))
	w.login("root")
}

// endTokens ends the tokens that half has: simple ones with its password, JSON Web Tokens by any change.
func (w *world) endTokens(t *testing.T) {
	t.Helper()
	before := w.tokens["half"]
	w.manage(func(ctx context.Context, auth pb.AuthClient, _ leasekeeperv1.LeasekeeperClient) error {
		return errorOf(auth.UserChangePassword(ctx, &pb.AuthUserChangePasswordRequest{Name: "half", Password: "half"}))
	})
	w.login("half")
	_, err := pb.NewKVClient(w.leader.conn).Range(withToken(w.context(), before), &pb.RangeRequest{Key: []byte("half/there")})
	if err == nil {
		t.Error("the token of half has not ended")
	}
}

// playAll shows streams of all kinds before and after half loses its rights. The rights are taken when it returns.
func (w *world) playAll(t *testing.T, methods map[string]*method, by withdrawal) error {
	t.Helper()
	scenes := w.scenesOf(methods)
	err := play("at the begin", scenes, func(k streamKind) func(*scene) error { return k.begin })
	w.endTokens(t)
	err = first(err, func() error {
		return play("after the token has ended", scenes, func(k streamKind) func(*scene) error { return k.live })
	})
	by.take(w)
	w.login("root")
	t.Logf("%d streams before and after %s", len(scenes), by.name)
	return first(err, func() error {
		return play("after "+by.name, scenes, func(k streamKind) func(*scene) error { return k.denied })
	})
}

// term is the greatest term of the members.
func (w *world) term() (term uint64) {
	for _, m := range w.members {
		term = max(term, m.node.Header().Term)
	}
	return term
}

// TestOpenStreamsFollowRightsAndNotTokens opens streams of all kinds as half, ends its tokens, which must end none of them, and
// withdraws its rights, which must end what they permitted. A change of the leader ends streams too, so it repeats the attempt.
func TestOpenStreamsFollowRightsAndNotTokens(t *testing.T) {
	for _, certificates := range []bool{false, true} {
		w := newWorld(t, certificates)
		methods := methodsOf(t, w.leader.conn)
		for _, by := range withdrawals {
			w.mustPlayAll(t, methods, by)
		}
	}
}

// mustPlayAll plays streams of all kinds until the cluster has a leader throughout. Half has its rights when it returns.
func (w *world) mustPlayAll(t *testing.T, methods map[string]*method, by withdrawal) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		w.through = w.cluster.through()
		term := w.term()
		err := w.playAll(t, methods, by)
		by.giveBack(w)
		w.login()
		if err == nil {
			return
		}
		if attempt == retries || w.term() == term && !strings.Contains(err.Error(), "Unavailable") {
			t.Fatal(err)
		}
		t.Logf("the cluster had no leader for a moment: %v", err)
	}
}

// TestEveryStreamHasAScene compares the kinds of streams with the server's methods.
func TestEveryStreamHasAScene(t *testing.T) {
	w := newWorld(t, false)
	for name, m := range methodsOf(t, w.leader.conn) {
		excused := slices.ContainsFunc(noScene, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		shown := slices.ContainsFunc(streamKinds, func(kind streamKind) bool { return kind.method == name })
		if m.streams() && excused == shown {
			t.Errorf("%s is a stream: shown by a scene %v, excused %v", name, shown, excused)
		}
	}
}

// noScene are the streams that end by themselves, and those that need no right. RangeStream and the snapshots have tests of
// their own.
var noScene = []string{"/etcdserverpb.KV/RangeStream", "/etcdserverpb.Maintenance/Snapshot", "/leasekeeper.v1.Members/Snapshot", "/grpc."}
