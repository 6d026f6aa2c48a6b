package namesapi

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/audit"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

const (
	// MinClaimTTL is the shortest TTL of a lease on a name. The server raises a shorter TTL to it.
	MinClaimTTL = 100 * time.Millisecond

	maxReasonBytes = 1024
	maxListNames   = 1000
	maxWaiters     = 100
	// maxNamesBytes is the size in bytes from which a message about names is full. Clients accept 4 MiB by default.
	maxNamesBytes = 1 << 20

	// announceTries bounds how often Announce tries again because another client changed the card in the meantime.
	announceTries = 8
)

// Member is what a [Service] uses of its member.
type Member interface {
	Range(ctx context.Context, req keyspace.RangeRequest, serializable bool) (replica.Header, keyspace.RangeResult, error)
	Txn(ctx context.Context, req keyspace.TxnRequest, serializable bool) (replica.Header, keyspace.TxnResult, error)
	Renew(ctx context.Context, ids []lessor.ID, answer func(replica.Header, []replica.RenewedLease)) error

	Claim(context.Context, ownership.Claim) (ownership.Claimed, error)
	Hold(ctx context.Context, watch *node.NameWatch, ops []entry.Command, answer func([]node.HoldAnswer)) error
	Place(ctx context.Context, name string, lease lessor.ID) (ownership.Place, error)
	Release(ctx context.Context, name string, lease lessor.ID) (bool, error)
	WatchClaim(lease lessor.ID) *node.NameWatch
	WatchClaims(wake chan struct{}) *node.NameWatch

	RevokeName(context.Context, ownership.Revoke) (ownership.Revoked, error)
	Transfer(ctx context.Context, name string, lease lessor.ID) (token int64, err error)
	Finish(context.Context, ownership.Finish) error
	RaiseMark(context.Context, ownership.RaiseMark) error
	CheckMarks(context.Context) error
	Prefer(context.Context, ownership.Prefer) error
	Pin(ctx context.Context, name, reason string) error
	Unpin(ctx context.Context, name string) error

	Names(ctx context.Context, names []string) (replica.NameStates, error)
	// Queue returns the state of a name with its first waiters and their cards.
	Queue(ctx context.Context, name string, most int) (ownership.State, error)
	HeldNames(ctx context.Context, prefix, after string, limit int) (names []string, index uint64, err error)
	History(ctx context.Context, name string) ([]record.Tenure, error)
	WatchNames(prefix string) *node.NameWatch

	// ChangeAccess changes the policy. The user of the request must have the role root.
	ChangeAccess(context.Context, access.Command) (replica.Header, error)

	// Audit reads a page of the audit log.
	Audit(context.Context, audit.Query) (page audit.Page, recording bool, err error)
	Quotas
}

// Metrics counts what a [Service] does.
type Metrics interface {
	// OpenWatch, OpenKeepAlive and OpenHold count a stream as open until closed is called.
	OpenWatch() (closed func())
	OpenKeepAlive() (closed func())
	OpenHold() (closed func())
	// Count counts n requests of a method that have ended with a code.
	Count(method string, code codes.Code, n int)
	// Refuse counts a refusal for one of [Reasons].
	Refuse(reason string)
}

// Rights decides what the user of a request may do. The Member checks the rights for all else.
type Rights interface {
	// MayName returns the context with which the service reads and changes keys of the name for itself.
	MayName(ctx context.Context, name string, rights access.Rights) (context.Context, error)
	MayNames(ctx context.Context, prefix string, rights access.Rights) error
	// ReadPolicy returns the policy after everything that was acknowledged before, and the user of the request.
	ReadPolicy(context.Context) (*access.Policy, access.Caller, error)
	// CountClaim counts a claim that came on a stream as a request of the stream's user.
	CountClaim(ctx context.Context) error
	// CountWatcher counts the watcher that was admitted last as one of the request's user.
	CountWatcher(context.Context, *admission.ConnectionWatchers) error
}

// Config is what a [Service] needs.
type Config struct {
	Member   Member
	Rights   Rights
	Metrics  Metrics
	Log      *slog.Logger
	Lifetime *lifetime.Lifetime
	Requests *admission.Requests
	Places   *admission.Places
	Watchers *admission.Watchers

	// LogSlow logs a request of a Hold stream with that trace id, if it took long. err is its error.
	LogSlow func(traceID, method string, took time.Duration, err error)
	// RequestTimeout bounds how long a request may wait for the member.
	RequestTimeout time.Duration
	// MaxTTL is the longest TTL of a lease on a name.
	MaxTTL time.Duration
	// MaxStreams bounds the open requests, and the waiting claims, on one Hold stream.
	MaxStreams int
}

// Service implements leasekeeper.v1: leases on names. Its methods are safe for concurrent use.
type Service struct {
	leasekeeperv1.UnimplementedLeasekeeperServer
	cfg       Config
	abandoned *abandonedClaims
}

// New makes a service. The caller also runs [Service.EndAbandoned].
func New(c Config) *Service { return &Service{cfg: c, abandoned: newAbandonedClaims()} }

func (n *Service) Release(ctx context.Context, r *leasekeeperv1.ReleaseRequest) (*leasekeeperv1.ReleaseResponse, error) {
	if err := checkLease(r.Name, r.Lease); err != nil {
		return nil, err
	}
	ended, err := n.cfg.Member.Release(ctx, r.Name, lessor.ID(r.Lease))
	if err != nil {
		return nil, err
	}
	n.abandoned.resume(claimKey{r.Name, lessor.ID(r.Lease)})
	return &leasekeeperv1.ReleaseResponse{Ended: ended}, nil
}

func (n *Service) Get(ctx context.Context, r *leasekeeperv1.GetRequest) (*leasekeeperv1.GetResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	if r.Waiters > 0 {
		return n.getQueue(ctx, r)
	}
	states, err := n.cfg.Member.Names(ctx, []string{r.Name})
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.GetResponse{Info: nameInfo(&states.Names[0])}, nil
}

func (n *Service) getQueue(ctx context.Context, r *leasekeeperv1.GetRequest) (*leasekeeperv1.GetResponse, error) {
	s, err := n.cfg.Member.Queue(ctx, r.Name, min(int(r.Waiters), maxWaiters))
	if err != nil {
		return nil, err
	}
	resp := &leasekeeperv1.GetResponse{Info: nameInfo(&s)}
	for i := range s.Queue {
		w := &s.Queue[i]
		resp.Waiters = append(resp.Waiters, &leasekeeperv1.Waiter{
			Holder: readHolder(w.Card), Lease: int64(w.Lease), Token: uint64(w.Token), Priority: w.Priority, Recipe: !w.Claimed,
		})
	}
	return resp, nil
}

func (n *Service) List(ctx context.Context, r *leasekeeperv1.ListRequest) (*leasekeeperv1.ListResponse, error) {
	limit := int(r.Limit)
	if limit <= 0 || limit > maxListNames {
		limit = maxListNames
	}
	resp := &leasekeeperv1.ListResponse{More: true}
	size := 0
	for after := r.After; resp.More && len(resp.Names) < limit && size < maxNamesBytes; {
		room := limit - len(resp.Names)
		names, _, err := n.cfg.Member.HeldNames(ctx, r.Prefix, after, room+1)
		if err != nil {
			return nil, err
		}
		resp.More = len(names) > room
		names = names[:min(len(names), room)]
		states, err := n.cfg.Member.Names(ctx, names)
		if err != nil {
			return nil, err
		}
		for i := range states.Names {
			if size >= maxNamesBytes {
				resp.More = true
				break
			}
			after = names[i]
			if isValidName(&states.Names[i]) && states.Names[i].Held {
				info := nameInfo(&states.Names[i])
				size += proto.Size(info)
				resp.Names, resp.Last = append(resp.Names, info), after
			}
		}
	}
	return resp, nil
}

func (n *Service) History(ctx context.Context, r *leasekeeperv1.HistoryRequest) (*leasekeeperv1.HistoryResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	all, err := n.cfg.Member.History(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if limit := int(r.Limit); limit > 0 {
		all = all[:min(len(all), limit)]
	}
	resp := new(leasekeeperv1.HistoryResponse)
	for i := range all {
		resp.Tenures = append(resp.Tenures, tenure(&all[i]))
	}
	return resp, nil
}

func (n *Service) Revoke(ctx context.Context, r *leasekeeperv1.RevokeRequest) (*leasekeeperv1.RevokeResponse, error) {
	if err := checkReason(r.Name, r.Reason); err != nil {
		return nil, err
	}
	revoked, err := n.cfg.Member.RevokeName(ctx, ownership.Revoke{Name: r.Name, Token: int64(r.Token), Note: r.Reason, Now: r.Now})
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.RevokeResponse{Token: uint64(revoked.Token), EndsInMs: millisUp(revoked.Left)}, nil
}

func (n *Service) Pin(ctx context.Context, r *leasekeeperv1.PinRequest) (*leasekeeperv1.PinResponse, error) {
	if err := checkReason(r.Name, r.Reason); err != nil {
		return nil, err
	}
	if err := n.cfg.Member.Pin(ctx, r.Name, r.Reason); err != nil {
		return nil, err
	}
	return &leasekeeperv1.PinResponse{}, nil
}

func (n *Service) Unpin(ctx context.Context, r *leasekeeperv1.UnpinRequest) (*leasekeeperv1.UnpinResponse, error) {
	if err := checkName(r.Name); err != nil {
		return nil, err
	}
	if err := n.cfg.Member.Unpin(ctx, r.Name); err != nil {
		return nil, err
	}
	return &leasekeeperv1.UnpinResponse{}, nil
}

func (n *Service) Transfer(ctx context.Context, r *leasekeeperv1.TransferRequest) (*leasekeeperv1.TransferResponse, error) {
	if err := checkLease(r.Name, r.Lease); err != nil {
		return nil, err
	}
	token, err := n.cfg.Member.Transfer(ctx, r.Name, lessor.ID(r.Lease))
	if err != nil {
		return nil, err
	}
	return &leasekeeperv1.TransferResponse{Token: uint64(token)}, nil
}

// Announce rewrites the holder's key, on the condition that no other client has changed it. While the key exists with
// its create revision, its lease holds the name.
func (n *Service) Announce(ctx context.Context, r *leasekeeperv1.AnnounceRequest) (*leasekeeperv1.AnnounceResponse, error) {
	if err := checkLease(r.Name, r.Lease); err != nil {
		return nil, err
	}
	ctx, err := n.cfg.Rights.MayName(ctx, r.Name, access.Hold)
	if err != nil {
		return nil, err
	}
	key := ownership.Key(r.Name, lessor.ID(r.Lease))
	for range announceTries {
		_, found, err := n.cfg.Member.Range(ctx, keyspace.RangeRequest{Key: key}, false)
		if err != nil {
			return nil, err
		}
		place, err := n.cfg.Member.Place(ctx, r.Name, lessor.ID(r.Lease))
		if err != nil {
			return nil, err
		}
		if place.Before > 0 || len(found.KVs) == 0 || found.KVs[0].CreateRevision != place.Token {
			return nil, ownership.ErrLost
		}
		card := readHolder(found.KVs[0].Value)
		card.Text = r.Text // writeHolder checks the whole card
		value, err := writeHolder(card)
		if err != nil {
			return nil, err
		}
		_, result, err := n.cfg.Member.Txn(ctx, keyspace.TxnRequest{
			Compare: []keyspace.Compare{{Target: keyspace.CompareMod, Key: key, Number: found.KVs[0].ModRevision}},
			Success: []keyspace.TxnOp{keyspace.PutRequest{Key: key, Value: value, IgnoreLease: true}},
		}, false)
		if err != nil {
			return nil, err
		}
		if result.Succeeded {
			return &leasekeeperv1.AnnounceResponse{}, nil
		}
	}
	return nil, replica.ErrTooManyRequests
}

// checkName checks a name. If a client has put a namespace before the name, both parts must be valid names.
func checkName(name string) error {
	if len(name) > backend.MaxName {
		if slash := strings.LastIndexByte(name[:backend.MaxName+1], '/'); slash > 0 {
			if err := backend.CheckName(name[:slash]); err != nil {
				return err
			}
			return backend.CheckName(name[slash+1:])
		}
	}
	return backend.CheckName(name)
}

// isValidName reports whether this service can show a name. A lock of etcd's recipe can have any name, even one that is
// not text.
func isValidName(s *ownership.State) bool { return checkName(s.Name) == nil }

// checkLease checks a name and the id of a lease on it.
func checkLease(name string, lease int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	if lease <= 0 {
		return fmt.Errorf("%w: the lease id is %d: give the id under which it was acquired, which is above 0", backend.ErrInvalid, lease)
	}
	return nil
}

func checkReason(name, reason string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(reason) > maxReasonBytes || !utf8.ValidString(reason) {
		return fmt.Errorf("%w: the reason is longer than %d bytes, or not UTF-8", backend.ErrInvalid, maxReasonBytes)
	}
	return nil
}

// claimTTLOf returns the TTL to grant for the requested milliseconds. A holder that has failed keeps its name for a
// TTL, so the operator bounds it.
func (s *Service) claimTTLOf(ms int64) (time.Duration, error) {
	switch {
	case ms <= 0:
		return 0, fmt.Errorf("%w: the TTL is %d ms: give one above 0", backend.ErrInvalid, ms)
	case ms > s.cfg.MaxTTL.Milliseconds():
		return 0, fmt.Errorf("%w: the TTL is %d ms, and this server allows %v (--max-ttl): ask for a shorter one and renew it",
			backend.ErrInvalid, ms, s.cfg.MaxTTL)
	}
	return max(time.Duration(ms)*time.Millisecond, MinClaimTTL), nil
}

// millisUp rounds up, so that no client regards a living lease as ended.
func millisUp(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

func nameInfo(s *ownership.State) *leasekeeperv1.NameInfo {
	info := &leasekeeperv1.NameInfo{Name: s.Name, Held: s.Held, Token: uint64(s.Token), Revision: s.Revision}
	if s.Pinned != nil {
		info.Pinned, info.PinReason = true, *s.Pinned
	}
	if s.Revoked != nil {
		info.Revoked, info.RevokeReason = true, *s.Revoked
	}
	if !s.Held {
		return info
	}
	info.Holder, info.Lease = readHolder(s.Holder), int64(s.Lease)
	info.TtlMs, info.RemainingMs = s.TTL.Milliseconds(), millisUp(s.Left)
	info.Waiting, info.Finished = int32(s.Waiting), s.Finished
	return info
}

func tenure(t *record.Tenure) *leasekeeperv1.Tenure {
	return &leasekeeperv1.Tenure{
		Token: uint64(t.Token), Lease: int64(t.Lease), Holder: readHolder(t.Holder),
		From: timestamp(t.From), To: timestamp(t.To), Why: leasekeeperv1.Why(t.Why), Note: t.Note,
	}
}
