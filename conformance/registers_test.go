package conformance

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// registerCount is how many keys the clients of the registers share at a time, registerWriters how many of these clients put,
	// and registerSwappers how many replace a value that they have read.
	registerCount    = 2
	registerWriters  = 2
	registerSwappers = 2
	// registerPause is the pause of a client between two calls, and registerAge how long a key is used before another one
	// takes its place. They bound how many calls porcupine has to put in order.
	registerPause = 10 * time.Millisecond
	registerAge   = 15 * time.Second
	// searchLimit is how long the search for an order of the calls may take.
	searchLimit = time.Minute
)

// registers is keys that several clients put, swap and read at the same time. Afterwards porcupine searches an order of all
// calls in which each value is explained by the last write before it.
type registers struct {
	d      *drill
	began  time.Time
	values atomic.Int64                // the last value that was drawn: each write has a value of its own
	acked  [registerCount]atomic.Int64 // acknowledged writes, by register modulo registerCount

	mu    sync.Mutex
	calls []porcupine.Operation // that have ended; mu guards it
}

// registerCall is what a client asked for.
type registerCall struct {
	register int // a number; registerKey is its key
	kind     registerKind
	from     int64 // that a swap expects
	to       int64 // that a put or a swap writes
}

type registerKind int

const (
	registerGet registerKind = iota
	registerPut
	registerSwap
)

// registerAnswer is what a client was answered.
type registerAnswer struct {
	content registerContent // after the call
	refused bool            // a swap has found another value than it expects
	unknown bool            // whether the call had an effect; content is unknown too then
}

// registerContent is the state of one register: a value, and the revision of its write. Both are 0 before the first write.
type registerContent struct{ value, revision int64 }

func newRegisters(d *drill) *registers { return &registers{d: d, began: time.Now()} }

// workers put, swap and read through clients of all members, and read at each member alone.
func (r *registers) workers() (all []func()) {
	for n := range registerWriters {
		all = append(all, r.each(r.putting(r.d.client(n))))
	}
	for n := range registerSwappers {
		all = append(all, r.each(r.swapping(r.d.client(n+1))))
	}
	for _, m := range r.d.g.reachable {
		all = append(all, r.each(r.reading(m)))
	}
	return all
}

// each makes one call after the other, each at some register, until the drill is over.
func (r *registers) each(call func(register int)) func() {
	return func() {
		for !r.d.ended() {
			call(registerCount*int(time.Since(r.began)/registerAge) + rand.IntN(registerCount))
			time.Sleep(registerPause)
		}
	}
}

func registerKey(register int) string { return fmt.Sprintf("%sregister-%d", drillKeys, register) }

// now is the present moment in a history.
func (r *registers) now() int64 { return int64(time.Since(r.began)) }

// note adds a call that ends now to the history.
func (r *registers) note(call registerCall, from int64, answer registerAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, porcupine.Operation{Input: call, Call: from, Output: answer, Return: r.now()})
}

// wrote notes the write of a call.
func (r *registers) wrote(call registerCall, from, revision int64) {
	r.note(call, from, registerAnswer{content: registerContent{call.to, revision}})
	r.acked[call.register%registerCount].Add(1)
	r.d.history.acked(registerKey(call.register), revision)
}

// putting puts a new value.
func (r *registers) putting(c *clientv3.Client) func(register int) {
	return func(register int) {
		from := r.now()
		call := registerCall{register: register, kind: registerPut, to: r.values.Add(1)}
		if err := r.d.call("register: put", func(ctx context.Context) error {
			resp, err := c.Put(ctx, registerKey(register), strconv.FormatInt(call.to, 10))
			if err == nil {
				r.wrote(call, from, resp.Header.Revision)
			}
			return err
		}); err != nil {
			r.note(call, from, registerAnswer{unknown: true})
		}
	}
}

// swapping reads a value, and replaces it if it is still there.
func (r *registers) swapping(c *clientv3.Client) func(register int) {
	return func(register int) {
		found, ok := r.read(c, register)
		if !ok || found.revision == 0 {
			return
		}
		from, key := r.now(), registerKey(register)
		call := registerCall{register: register, kind: registerSwap, from: found.value, to: r.values.Add(1)}
		if err := r.d.call("register: swap", func(ctx context.Context) error {
			resp, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", strconv.FormatInt(call.from, 10))).
				Then(clientv3.OpPut(key, strconv.FormatInt(call.to, 10))).Else(clientv3.OpGet(key)).Commit()
			switch {
			case err != nil:
			case resp.Succeeded:
				r.wrote(call, from, resp.Header.Revision)
			default:
				r.note(call, from, registerAnswer{content: registerFound(resp.Responses[0].GetResponseRange()), refused: true})
			}
			return err
		}); err != nil {
			r.note(call, from, registerAnswer{unknown: true})
		}
	}
}

// read reads a register. Reads that fail have no place in the history.
func (r *registers) read(c *clientv3.Client, register int) (found registerContent, ok bool) {
	from := r.now()
	err := r.d.call("register: get", func(ctx context.Context) error {
		resp, err := c.Get(ctx, registerKey(register))
		if err == nil {
			found = registerFound((*pb.RangeResponse)(resp))
			r.note(registerCall{register: register}, from, registerAnswer{content: found})
		}
		return err
	})
	return found, err == nil
}

// reading reads at one server only, which may be down or removed. Such a read fails or is right.
func (r *registers) reading(m *server) func(register int) {
	conn, err := grpc.NewClient(m.grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	wantOK(r.d.t, "connection", err)
	r.d.t.Cleanup(func() { conn.Close() })
	kv := pb.NewKVClient(conn)
	return func(register int) {
		began, from := time.Now(), r.now()
		ctx, cancel := context.WithTimeout(r.d.t.Context(), callLimit)
		defer cancel()
		resp, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte(registerKey(register))})
		switch {
		case err == nil:
			r.note(registerCall{register: register}, from, registerAnswer{content: registerFound(resp)})
			r.d.log.called("register: get at one member", time.Since(began), 0, nil)
		case !mayBeTriedAgain(err):
			r.d.t.Errorf("a read at %s: after %v: %v", m.name, time.Since(began), err)
		}
	}
}

func registerFound(resp *pb.RangeResponse) registerContent {
	if len(resp.Kvs) == 0 {
		return registerContent{}
	}
	value, _ := strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64)
	return registerContent{value, resp.Kvs[0].ModRevision}
}

// progress waits until each register has new acknowledged writes.
func (r *registers) progress() {
	r.d.t.Helper()
	const more = 5
	began := time.Now()
	for i := range r.acked {
		goal := r.acked[i].Load() + more
		eventually(r.d.t, waitLimit, "clients write", func() bool { return r.acked[i].Load() >= goal })
	}
	r.d.t.Logf("all registers were written %d times within %v", more, time.Since(began).Round(time.Millisecond))
}

// check fails the test if the calls have no order that explains what the clients were answered.
func (r *registers) check() {
	t, calls := r.d.t, resolveRegisters(r.calls)
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(registerModel, calls, searchLimit)
	t.Logf("%d calls of registers, %d of them with a known effect, ordered within %v", len(r.calls), len(calls), time.Since(began).Round(time.Millisecond))
	if result == porcupine.Ok {
		return
	}
	path := filepath.Join(t.ArtifactDir(), "registers.html")
	t.Errorf("the registers are not linearizable: %s; see %s, which the flag -artifacts keeps (%v)",
		result, path, porcupine.VisualizePath(registerModel, info, path))
}

// resolveRegisters returns the calls whose effect is known. A call without an answer has had an effect before the end of
// the first other call that found its value. If none did, then it can be left out: whatever explains the others also
// explains them without it.
func resolveRegisters(calls []porcupine.Operation) []porcupine.Operation {
	type finding struct {
		revision int64
		until    int64
	}
	found := make(map[int64]finding) // the first of each value
	for _, o := range calls {
		call, answer := o.Input.(registerCall), o.Output.(registerAnswer)
		if answer.unknown || call.kind != registerGet && !answer.refused {
			continue
		}
		first, ok := found[answer.content.value]
		if !ok || o.Return < first.until {
			found[answer.content.value] = finding{answer.content.revision, o.Return}
		}
	}
	var known []porcupine.Operation
	for _, o := range calls {
		call := o.Input.(registerCall)
		if o.Output.(registerAnswer).unknown {
			first, ok := found[call.to]
			if !ok {
				continue
			}
			o.Output = registerAnswer{content: registerContent{call.to, first.revision}}
			o.Return = first.until
		}
		known = append(known, o)
	}
	return known
}

// registerModel says what one register does. Revisions grow with each write.
var registerModel = porcupine.Model{
	Partition: func(calls []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[int][]porcupine.Operation)
		for _, o := range calls {
			register := o.Input.(registerCall).register
			parts[register] = append(parts[register], o)
		}
		return slices.Collect(maps.Values(parts))
	},
	Init: func() any { return registerContent{} },
	Step: func(state, input, output any) (bool, any) {
		now, call, answer := state.(registerContent), input.(registerCall), output.(registerAnswer)
		switch {
		case call.kind == registerGet:
			return answer.content == now, now
		case call.kind == registerSwap && answer.refused:
			return answer.content == now && now.value != call.from, now
		case call.kind == registerSwap && now.value != call.from:
			return false, now
		}
		return answer.content.revision > now.revision, answer.content
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v: %+v", input, output)
	},
}

// The model refuses what a register never does, and accepts what clients without an answer may have done.
func TestRegisterModelRefusesLostAndStaleValues(t *testing.T) {
	get := func(from, to, value, revision int64) porcupine.Operation {
		return porcupine.Operation{Input: registerCall{}, Call: from, Return: to, Output: registerAnswer{content: registerContent{value, revision}}}
	}
	put := func(from, to, value, revision int64) porcupine.Operation {
		return porcupine.Operation{Input: registerCall{kind: registerPut, to: value}, Call: from, Return: to, Output: registerAnswer{content: registerContent{value, revision}}}
	}
	swap := func(from, to, old, value, revision int64) porcupine.Operation {
		return porcupine.Operation{Input: registerCall{kind: registerSwap, from: old, to: value}, Call: from, Return: to, Output: registerAnswer{content: registerContent{value, revision}}}
	}
	refused := func(from, to, old, value, revision int64) porcupine.Operation {
		o := swap(from, to, old, 0, 0)
		o.Output = registerAnswer{content: registerContent{value, revision}, refused: true}
		return o
	}
	unknown := func(o porcupine.Operation) porcupine.Operation {
		o.Output = registerAnswer{unknown: true}
		return o
	}
	for what, c := range map[string]struct {
		calls []porcupine.Operation
		want  porcupine.CheckResult
	}{
		"one after the other":  {[]porcupine.Operation{get(0, 1, 0, 0), put(2, 3, 1, 5), get(4, 5, 1, 5), swap(6, 7, 1, 2, 6), refused(8, 9, 1, 2, 6)}, porcupine.Ok},
		"at the same time":     {[]porcupine.Operation{put(0, 9, 1, 5), get(1, 2, 0, 0), get(3, 4, 1, 5)}, porcupine.Ok},
		"a stale read":         {[]porcupine.Operation{put(0, 1, 1, 5), put(2, 3, 2, 6), get(4, 5, 1, 5)}, porcupine.Illegal},
		"a lost write":         {[]porcupine.Operation{put(0, 1, 1, 5), get(2, 3, 0, 0)}, porcupine.Illegal},
		"a read goes back":     {[]porcupine.Operation{put(0, 9, 1, 5), get(1, 2, 1, 5), get(3, 4, 0, 0)}, porcupine.Illegal},
		"two swaps of one":     {[]porcupine.Operation{put(0, 1, 1, 5), swap(2, 5, 1, 2, 6), swap(2, 5, 1, 3, 7)}, porcupine.Illegal},
		"refused for nothing":  {[]porcupine.Operation{put(0, 1, 1, 5), refused(2, 3, 1, 1, 5)}, porcupine.Illegal},
		"a revision goes back": {[]porcupine.Operation{put(0, 1, 1, 5), put(2, 3, 2, 4)}, porcupine.Illegal},
		"a foreign revision":   {[]porcupine.Operation{put(0, 1, 1, 5), get(2, 3, 1, 4)}, porcupine.Illegal},
		"late effect":          {[]porcupine.Operation{unknown(put(0, 1, 1, 0)), put(2, 3, 2, 5), get(4, 5, 1, 6)}, porcupine.Ok},
		"effect undone":        {[]porcupine.Operation{unknown(put(0, 1, 1, 0)), get(2, 3, 1, 5), get(4, 5, 0, 0)}, porcupine.Illegal},
		"effect twice":         {[]porcupine.Operation{unknown(put(0, 1, 1, 0)), get(2, 3, 1, 5), put(4, 5, 2, 6), get(6, 7, 1, 7)}, porcupine.Illegal},
		"no effect":            {[]porcupine.Operation{put(0, 1, 1, 5), unknown(swap(2, 3, 1, 2, 0)), get(4, 5, 1, 5)}, porcupine.Ok},
		"swap of another":      {[]porcupine.Operation{put(0, 1, 1, 5), unknown(swap(2, 3, 9, 2, 0)), get(4, 5, 2, 6)}, porcupine.Illegal},
	} {
		if got := porcupine.CheckOperationsTimeout(registerModel, resolveRegisters(c.calls), searchLimit); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}
