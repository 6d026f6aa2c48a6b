package endpoints

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasekeeper/leasekeeper/backend"
)

// RecipeKind is the kind of a lock of etcd's recipe: a mutex or an election of etcd's client libraries, etcdctl lock or
// elect, or the Lock and Election services.
const RecipeKind = "etcd lock or election"

const (
	// recipeScan is how many keys one reading of locks looks at, and recipePage how many it reads in one request, without
	// their values.
	recipeScan, recipePage = 200_000, 1000
	// recipeHeads is how many keys one request reads with their values. etcd allows 128 operations.
	recipeHeads = 100
)

// Recipe reads the locks that programs hold by etcd's recipe. The key of a claim is PREFIX/LEASE, attached to that lease, with
// its id in hexadecimal. Of the keys of a prefix, the one that was created first is the holder's. The functions make one
// request each.
type Recipe struct {
	Range func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	Txn   func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	TTL   func(context.Context, int64) (*pb.LeaseTimeToLiveResponse, error)
}

// recipeQueue is the keys of one prefix.
type recipeQueue struct {
	name  string
	head  *mvccpb.KeyValue // created first
	count int
}

// Locks returns the locks that a program other than Leasekeeper holds, at most limit, in the order of names. more says that
// there may be others.
func (r Recipe) Locks(ctx context.Context, limit int) (locks []backend.ForeignLock, more bool, err error) {
	if limit <= 0 {
		return nil, false, fmt.Errorf("%w: a list of up to %d locks: ask for at least one", backend.ErrInvalid, limit)
	}
	queues, rev, more, err := r.scan(ctx)
	if err != nil {
		return nil, false, err
	}
	for part := range slices.Chunk(queues, recipeHeads) {
		if err := r.readHeads(ctx, part, rev); err != nil {
			return nil, false, err
		}
		for _, q := range part {
			if q.head == nil || isCard(q.head.Value) {
				continue
			}
			if len(locks) == limit {
				return locks, true, nil
			}
			left, err := r.TTL(ctx, q.head.Lease)
			if err != nil {
				return nil, false, err
			}
			if left.GrantedTTL > 0 { // else the lease has just ended
				locks = append(locks, q.lock(left))
			}
		}
	}
	return locks, more, nil
}

// scan returns the queues of all prefixes in the order of their names, as of one revision.
func (r Recipe) scan(ctx context.Context) (queues []*recipeQueue, rev int64, more bool, err error) {
	known := make(map[string]*recipeQueue)
	next, looked := []byte{0}, 0
	for more = true; more && looked < recipeScan; {
		resp, err := r.Range(ctx, &pb.RangeRequest{Key: next, RangeEnd: []byte{0}, Limit: recipePage, KeysOnly: true, Revision: rev})
		if err != nil {
			return nil, 0, false, err
		}
		rev = max(rev, resp.GetHeader().GetRevision())
		for _, kv := range resp.Kvs {
			name, ok := recipeName(kv)
			if !ok {
				continue
			}
			q := known[name]
			if q == nil {
				q = &recipeQueue{name: name, head: kv}
				known[name] = q
				queues = append(queues, q)
			}
			if q.count++; kv.CreateRevision < q.head.CreateRevision {
				q.head = kv
			}
		}
		more = resp.More && len(resp.Kvs) > 0
		if more {
			next = append(bytes.Clone(resp.Kvs[len(resp.Kvs)-1].Key), 0)
		}
		looked += len(resp.Kvs)
	}
	slices.SortFunc(queues, func(a, b *recipeQueue) int { return strings.Compare(a.name, b.name) })
	return queues, rev, more, nil
}

// recipeName returns the prefix of a key that looks like the key of a claim. etcd 3.7 omits leases where it omits values.
func recipeName(kv *mvccpb.KeyValue) (name string, ok bool) {
	key := string(kv.Key)
	slash := strings.LastIndexByte(key, '/')
	if slash <= 0 || strings.HasPrefix(key, backend.MarkPrefix) {
		return "", false
	}
	id := leaseOf(key)
	return key[:slash], id != 0 && (kv.Lease == id || kv.Lease == 0)
}

// leaseOf returns the lease that the last part of a key names, or 0.
func leaseOf(key string) int64 {
	part := key[strings.LastIndexByte(key, '/')+1:]
	id, err := strconv.ParseInt(part, 16, 64)
	if err != nil || strconv.FormatInt(id, 16) != part {
		return 0
	}
	return id
}

// readHeads reads the first key of each queue with its value. A key that has another lease than the one in its name is no
// claim, and leaves nil.
func (r Recipe) readHeads(ctx context.Context, queues []*recipeQueue, rev int64) error {
	req := new(pb.TxnRequest)
	for _, q := range queues {
		one := &pb.RangeRequest{Key: q.head.Key, Revision: rev}
		req.Success = append(req.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: one}})
	}
	resp, err := r.Txn(ctx, req)
	if err != nil {
		return err
	}
	for i, q := range queues {
		q.head = nil
		if i >= len(resp.Responses) {
			continue
		}
		if kvs := resp.Responses[i].GetResponseRange().GetKvs(); len(kvs) == 1 && kvs[0].Lease == leaseOf(string(kvs[0].Key)) {
			q.head = kvs[0]
		}
	}
	return nil
}

// isCard reports whether a value is the card of a holder that uses Leasekeeper.
func isCard(value []byte) bool {
	var card struct {
		Holder string `json:"holder"`
	}
	return json.Unmarshal(value, &card) == nil && card.Holder != ""
}

func (q *recipeQueue) lock(left *pb.LeaseTimeToLiveResponse) backend.ForeignLock {
	l := backend.ForeignLock{
		Kind: RecipeKind, Name: q.name, Holder: "etcd lease " + strconv.FormatInt(q.head.Lease, 16), Token: backend.Token(q.head.CreateRevision),
		TTL: time.Duration(left.GrantedTTL) * time.Second, Remaining: time.Duration(max(0, left.TTL)) * time.Second, Waiting: q.count - 1,
	}
	if v := q.head.Value; utf8.Valid(v) && len(v) <= backend.MaxCardText {
		l.Text = string(v)
	}
	return l
}
