package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/certificate"
	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

const (
	// joinLimit bounds one question of a process that joins.
	joinLimit = 2 * time.Second
	// DefaultJoinPatience is for how long a process that joins asks again if no member knows it.
	DefaultJoinPatience = 5 * time.Second
	joinPause           = 250 * time.Millisecond
)

// Joining describes a process that joins a cluster.
type Joining struct {
	// Ask are the addresses, as host:port, of members of the cluster.
	Ask []string
	// Address is where the members are to reach the process. It finds itself in the list of members by it.
	Address string
	// Files, unless empty, are the certificates by which the process proves to be at Address.
	Files CertificateFiles
	// Drift and MasterLease must be those of the members.
	Drift       clock.Drift
	MasterLease time.Duration
	// Patience is for how long the process asks again if no member knows it; 0 means DefaultJoinPatience. A member that
	// has not heard of the newest change answers so.
	Patience time.Duration
	Logger   *slog.Logger
}

// Joined says which member a process is.
type Joined struct {
	ClusterID, MemberID uint64
	Members             []roster.Member
}

// ErrNotInvited says that a process cannot join a cluster. The text says why, and what to do.
var ErrNotInvited = errors.New("this server cannot join the cluster")

// Join asks the members of a cluster which member the process is. It asks all of them, and accepts one answer if no other
// contradicts it. It fails at once if a member refuses the process as it is, and otherwise when its patience ends.
func Join(ctx context.Context, j Joining) (Joined, error) {
	if !validAddress(j.Address) {
		return Joined{}, fmt.Errorf("%w: %q is not the address of a member: write HOST:PORT", ErrNotInvited, j.Address)
	}
	if j.Patience == 0 {
		j.Patience = DefaultJoinPatience
	}
	if j.Logger == nil {
		j.Logger = slog.New(slog.DiscardHandler)
	}
	certs, err := openCertificates(&Config{Files: j.Files, Logger: j.Logger})
	if err != nil {
		return Joined{}, err
	}
	for end := time.Now().Add(j.Patience); ; {
		joined, again, err := j.askAll(ctx, certs)
		if err == nil || !again || time.Now().After(end) {
			return joined, err
		}
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
			return Joined{}, ctx.Err()
		}
	}
}

// answer is what one member says to a process that joins.
type answer struct {
	from   string
	joined Joined
	err    error
}

// askAll asks all members at the same time. again says that another try may have another outcome.
func (j *Joining) askAll(ctx context.Context, certs *certificate.Source) (_ Joined, again bool, _ error) {
	answers := make(chan answer, len(j.Ask))
	for _, address := range j.Ask {
		go func() {
			joined, err := j.ask(ctx, certs, address)
			answers <- answer{address, joined, err}
		}()
	}
	var good []answer
	var final, started, failed error
	var reasons []string
	for range j.Ask {
		a := <-answers
		text := fmt.Sprintf("%s: %s", a.from, status.Convert(a.err).Message())
		switch code := status.Code(a.err); {
		case a.err == nil:
			good = append(good, a)
		case code == codes.FailedPrecondition:
			final = fmt.Errorf("%w: %s", ErrNotInvited, text)
		case code == codes.AlreadyExists:
			started = fmt.Errorf("%w: %s", ErrNotInvited, text)
		case code == codes.NotFound:
			failed = fmt.Errorf("%w: %s", ErrNotInvited, text)
		default:
			reasons = append(reasons, text)
		}
	}
	switch {
	case len(good) > 0:
		return agreed(good, started)
	case final != nil:
		return Joined{}, false, final
	case started != nil: // by the list of a member that may lag behind a removal and an addition
		return Joined{}, true, started
	case failed != nil:
		return Joined{}, true, failed
	}
	slices.Sort(reasons)
	return Joined{}, true, fmt.Errorf("%w: no member answers (%s): name the peer addresses of members that run", ErrNotInvited, strings.Join(reasons, "; "))
}

// agreed returns what members say that know the process. started is the error of one that takes it for another process
// of the same member; nil if there is none. One of two that contradict each other lags, and will say something else.
func agreed(good []answer, started error) (_ Joined, again bool, _ error) {
	const wait = "wait until leasekeeper member list shows the same through each of them, then start this server again"
	first := good[0]
	for _, other := range good[1:] {
		if other.joined.ClusterID != first.joined.ClusterID {
			return Joined{}, false, fmt.Errorf("%w: %s and %s are of different clusters: name members of one cluster", ErrNotInvited, first.from, other.from)
		}
		if other.joined.MemberID != first.joined.MemberID {
			return Joined{}, true, fmt.Errorf("%w: the members disagree: by %s it is %x, and by %s %x: %s",
				ErrNotInvited, first.from, first.joined.MemberID, other.from, other.joined.MemberID, wait)
		}
	}
	if started != nil {
		return Joined{}, true, fmt.Errorf("%w; the members disagree: by %s it is %x, which has not started: %s", started, first.from, first.joined.MemberID, wait)
	}
	return first.joined, false, nil
}

// ask asks one member.
func (j *Joining) ask(ctx context.Context, certs *certificate.Source, address string) (Joined, error) {
	ctx, cancel := context.WithTimeout(ctx, joinLimit)
	defer cancel()
	reasons := make(chan error, 1)
	failed := func(err error) {
		select {
		case reasons <- err:
		default: // the first one says more
		}
	}
	creds := credentialsFor(certs, failed)
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			failed(err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithContextDialer(dial))
	if err != nil {
		return Joined{}, err
	}
	defer conn.Close()
	resp, err := peerpb.NewPeerClient(conn).Join(ctx, &peerpb.JoinRequest{
		Address: j.Address, Version: uint32(gate.Newest), DriftPpm: uint32(j.Drift), MasterLeaseNs: int64(j.MasterLease),
	})
	if err != nil {
		return Joined{}, whyNot(err, reasons)
	}
	joined := Joined{ClusterID: resp.ClusterId, MemberID: resp.MemberId}
	listed := false
	for _, m := range resp.Members {
		joined.Members = append(joined.Members, roster.Member{ID: m.Id, Name: m.Name, PeerURLs: m.PeerUrls, ClientURLs: m.ClientUrls, Learner: m.Learner})
		listed = listed || m.Id == resp.MemberId
	}
	if resp.ClusterId == 0 || resp.MemberId == 0 || !listed {
		return Joined{}, errors.New("its answer makes no sense")
	}
	return joined, nil
}

// whyNot returns the reason why a member gave no answer, in words for operators. reasons has that of a failed connection.
func whyNot(err error, reasons <-chan error) error {
	select {
	case why := <-reasons:
		return why
	default:
	}
	switch s := status.Convert(err); {
	case s.Code() == codes.Unimplemented:
		return errors.New("it is no member, or its program is too old for members to join: name a peer address, and upgrade all members first")
	case s.Code() == codes.Unavailable && strings.Contains(s.Message(), "HTTP/1.1 header"):
		return errTLSThere
	}
	return err
}

// unlistedHere is the answer of a member that knows only founders, or only those that it was told of when it joined. It
// cannot know which of them have started.
const unlistedHere = "this member has no list of members yet: if this server is new, add it with leasekeeper member add, then start it again; " +
	"a founder starts with --initial-cluster, and without --join; a founder whose data is lost must be removed first"

// Join implements [peerpb.PeerServer]. Its caller has proven nothing but to be at an address, and learns nothing unless a
// member has that address.
func (s *service) Join(ctx context.Context, r *peerpb.JoinRequest) (*peerpb.JoinResponse, error) {
	t := s.t
	if t.certs != nil {
		info, ok := peer.FromContext(ctx)
		if !ok {
			return nil, status.Error(codes.FailedPrecondition, "no certificate was shown")
		}
		if host, err := checkHost(info.AuthInfo, r.Address); err != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "the certificate that this server shows is not for %s, the host of its peer address (%v): give it one for this host", host, err)
		}
	}
	if !t.cfg.Listed() {
		return nil, status.Error(codes.NotFound, unlistedHere)
	}
	t.mu.Lock()
	list := t.list
	t.mu.Unlock()
	joining, err := t.invited(list, r)
	if err != nil {
		return nil, err
	}
	resp := &peerpb.JoinResponse{ClusterId: t.cfg.ClusterID, MemberId: joining.ID}
	for _, m := range list {
		resp.Members = append(resp.Members, &peerpb.JoinMember{Id: m.ID, Name: m.Name, PeerUrls: m.PeerURLs, ClientUrls: m.ClientURLs, Learner: m.Learner})
	}
	return resp, nil
}

// invited returns the member of a list that a process which joins is, or why it cannot join.
func (t *Transport) invited(list []roster.Member, r *peerpb.JoinRequest) (roster.Member, error) {
	var found []roster.Member
	own := roster.Address(r.Address)
	for _, m := range list {
		if slices.ContainsFunc(m.PeerURLs, func(url string) bool { return roster.Address(url) == own }) {
			found = append(found, m)
		}
	}
	refuse := func(format string, args ...any) (roster.Member, error) {
		return roster.Member{}, status.Errorf(codes.FailedPrecondition, format, args...)
	}
	switch {
	case len(found) == 0:
		return roster.Member{}, status.Errorf(codes.NotFound, "no member has the peer address %s: add it with leasekeeper member add, then start this server again", r.Address)
	case len(found) > 1:
		return refuse("several members have the peer address %s: give each its own with leasekeeper member update", r.Address)
	case found[0].Incarnation != 0 || found[0].ID == t.cfg.Self:
		return roster.Member{}, status.Errorf(codes.AlreadyExists,
			"the member at %s has started with another data directory: start it with that one; if it is lost, remove the member and add it again", r.Address)
	case r.Version < t.oldestVersion():
		return refuse("this program is too old: it knows version %d of the log, and the cluster uses version %d: start the newer program", r.Version, t.oldestVersion())
	case r.DriftPpm != uint32(t.cfg.Drift) || r.MasterLeaseNs != int64(t.cfg.MasterLease):
		return refuse("the members have a --clock-drift of %s and a --master-lease of %v, and this server %s and %v: give it the same",
			percent(t.cfg.Drift), t.cfg.MasterLease, percent(clock.Drift(r.DriftPpm)), time.Duration(r.MasterLeaseNs))
	}
	return found[0], nil
}

// percent returns a drift bound in the form in which operators write it.
func percent(d clock.Drift) string { return strconv.FormatFloat(float64(d)/10_000, 'f', -1, 64) + "%" }
