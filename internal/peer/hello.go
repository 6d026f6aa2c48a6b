package peer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/peer/peerpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

const (
	// helloKey is the metadata key under which each side of a call identifies itself.
	helloKey = "leasekeeper-hello-bin"
	// protocolVersion is the version that this member speaks. It is that of package gate, and so counts what is in the log
	// as well. firstVersion is the oldest that a Hello ever had.
	protocolVersion = uint32(gate.Newest)
	firstVersion    = 1
)

// oldestVersion returns the oldest version that this member accepts. Once the log uses a version, older programs cannot
// read it.
func (t *Transport) oldestVersion() uint32 { return max(firstVersion, uint32(t.cfg.InUse())) }

// hello returns the Hello of this member to another.
func (t *Transport) hello(to uint64) metadata.MD {
	text, err := proto.Marshal(&peerpb.Hello{
		Version: protocolVersion, Oldest: t.oldestVersion(),
		ClusterId: t.cfg.ClusterID, From: t.cfg.Self, To: to, Incarnation: t.cfg.Incarnation, Address: t.self(),
	})
	if err != nil {
		panic(fmt.Sprintf("peer: cannot encode a greeting: %v", err))
	}
	return metadata.Pairs(helloKey, string(text))
}

// parseHello returns nil if there is no Hello.
func parseHello(md metadata.MD) *peerpb.Hello {
	values := md.Get(helloKey)
	hello := new(peerpb.Hello)
	if len(values) != 1 || proto.Unmarshal([]byte(values[0]), hello) != nil {
		return nil
	}
	return hello
}

// helloError is the reason for refusing a member. text is for the log of the refusing member, and contains IDs. A
// refused caller only receives public, which contains no IDs: from IDs an unknown peer could make a Hello that is
// accepted.
type helloError struct{ text, public string }

func (e *helloError) Error() string { return e.text }

// refusalText returns the text that a refused caller receives.
func refusalText(err error) string {
	if refused := (*helloError)(nil); errors.As(err, &refused) {
		return refused.public
	}
	return unprovenText
}

const (
	// seeLog ends the texts that refused callers receive.
	seeLog = "; the log of the member that refuses has the details"
	// unprovenText is the text for callers that have not proven to be a member.
	unprovenText = "the caller has not proven to be a member of this cluster: give each member a certificate for the host in its " +
		"peer URL, which leasekeeper member list shows" + seeLog
	// unlistedText is the text for callers that are in no list of members and call as one.
	unlistedText = "the caller is not in the list of members that the called member has: if it was added just now, it tries again until " +
		"that has changed; if it was removed, stop it" + seeLog
)

// checkHello returns an error if this member must refuse the other side. The error says how to fix the cause.
func (t *Transport) checkHello(h *peerpb.Hello) error {
	refuse := func(public, format string, args ...any) error {
		return &helloError{fmt.Sprintf(format, args...), public}
	}
	switch {
	case h == nil:
		const public = "the caller does not say which member it is: only members of a cluster connect here, clients use another address"
		return refuse(public, public)
	case h.Version < t.oldestVersion() || h.Oldest > protocolVersion:
		return refuse("both sides speak different versions of the members' protocol: start the newer program on both, and upgrade one release at a time"+seeLog,
			"the member %x speaks version %d of the members' protocol (and accepts %d and later), the member %x "+
				"speaks %d (and accepts %d and later): start the newer program on both, and upgrade one release at a time",
			h.From, h.Version, h.Oldest, t.cfg.Self, protocolVersion, t.oldestVersion())
	case h.ClusterId != t.cfg.ClusterID:
		return refuse("the member that was called is of another cluster: found all members with the same --initial-cluster, "+
			"and use addresses that no other cluster uses"+seeLog,
			"the member %x is of the cluster %x, and %x of the cluster %x: found all members with the same "+
				"--initial-cluster, and use addresses that no other cluster uses", h.From, h.ClusterId, t.cfg.Self, t.cfg.ClusterID)
	case h.To != t.cfg.Self:
		return refuse("the call was meant for another member: at the caller the address of one member leads to another; correct "+
			"the peer URLs (--initial-cluster before the members change), or where their names lead"+seeLog,
			"this is the member %x, not %x: in the member %x the address of one leads to the other; "+
				"correct the peer URLs (--initial-cluster before the members change), or where their names lead", t.cfg.Self, h.To, h.From)
	case h.From == t.cfg.Self:
		return refuse("the caller says that it is the member that it has called: give each member a --name of its own"+seeLog,
			"two members are both %x: give each one a --name of its own", h.From)
	case h.Incarnation == 0:
		return refuse("the caller does not say of which incarnation it is"+seeLog,
			"the member %x does not say of which incarnation it is", h.From)
	}
	return nil
}

// checkProof returns an error if a caller has not proven to be a member. listed says that it has proven to be the member that
// its Hello names, at the address that this member knows. Otherwise it has only proven to be at the address in its Hello, with
// a certificate of the members' authority: it may be a member that this one does not know yet, or whose address has changed.
// Without TLS no proof is required.
func (t *Transport) checkProof(ctx context.Context, h *peerpb.Hello) (listed bool, err error) {
	address := t.known.Load().addresses[h.GetFrom()]
	if t.certs == nil {
		return address != "", nil
	}
	info, ok := peer.FromContext(ctx)
	if !ok {
		return false, errors.New("no certificate was shown")
	}
	err = fmt.Errorf("the caller says that it is %x, which is in no list of members, and not at which address it is", h.GetFrom())
	if address != "" {
		if err = checkCertificate(info.AuthInfo, h.From, address); err == nil {
			return true, nil
		}
	}
	if claimed := h.GetAddress(); claimed != "" && claimed != address {
		return false, checkCertificate(info.AuthInfo, h.From, claimed)
	}
	return false, err
}

func errUnlisted(member uint64) error {
	return &helloError{fmt.Sprintf("the member %x is not in the list of members of this one, so it may only send messages of the log", member), unlistedText}
}

// A caller is the member that made a call.
type caller struct {
	member, incarnation uint64
	in                  *inbound // of the member's streams
}

type callerKey struct{}

// From returns the member that made the call of ctx, and the incarnation of its data directory.
func From(ctx context.Context) (member, incarnation uint64, ok bool) {
	c, ok := ctx.Value(callerKey{}).(caller)
	return c.member, c.incarnation, ok
}

// admit accepts a call if it comes from a member. With TLS the caller must have proven to be the member that its Hello
// names. A member that this one does not know, or knows at another address, may only call the transport's own service: this
// member may lack the newest changes of the members, and receives them from a leader that it does not know yet.
func (t *Transport) admit(ctx context.Context, own bool) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	hello := parseHello(md)
	// Check the proof first: only members may learn what the Hello is compared with.
	listed, err := t.checkProof(ctx, hello)
	if err == nil {
		err = t.checkHello(hello)
	}
	if err == nil && !listed && !own {
		err = errUnlisted(hello.From)
	}
	var l *link
	if err == nil {
		l, err = t.welcome(hello.From, hello.Address, listed)
	}
	if err != nil {
		t.refusals.log(ctx, t.cfg.Logger, hello.GetFrom(), err)
		return nil, status.Error(codes.FailedPrecondition, refusalText(err))
	}
	t.refusals.forget(hello.From)
	proveConnection(ctx)
	l.heard()
	if err := grpc.SetHeader(ctx, t.hello(hello.From)); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, callerKey{}, caller{hello.From, hello.Incarnation, l.inbound}), nil
}

// begin registers a call, unless the transport is closing.
func (t *Transport) begin() (end func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosing
	}
	t.requests.Add(1)
	return t.requests.Done, nil
}

func (t *Transport) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	admitted := ctx
	if info.FullMethod != peerpb.Peer_Join_FullMethodName { // whose caller does not know yet which member it is
		var err error
		if admitted, err = t.admit(ctx, false); err != nil {
			return nil, markRefused(ctx, err)
		}
	}
	end, err := t.begin()
	if err != nil {
		return nil, markRefused(ctx, err)
	}
	defer end()
	return handle(admitted, req)
}

// admitted is a stream of an accepted caller.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

func (a *admitted) Context() context.Context { return a.ctx }

func (t *Transport) stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	_, own := srv.(*service)
	ctx, err := t.admit(stream.Context(), own)
	if err != nil {
		return markRefused(stream.Context(), err)
	}
	if !own {
		// The transport's own streams are not registered: they last as long as the transport.
		end, err := t.begin()
		if err != nil {
			return markRefused(ctx, err)
		}
		defer end()
	}
	return handle(srv, &admitted{stream, ctx})
}

// greet and greetStream add this member's Hello to each call.
func (l *link) greet(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(l.greeted(ctx), method, req, reply, cc, opts...)
}

func (l *link) greetStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(l.greeted(ctx), desc, cc, method, opts...)
}

func (l *link) greeted(ctx context.Context) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		md = metadata.MD{}
	}
	md.Set(helloKey, l.greeting().text...)
	return metadata.NewOutgoingContext(ctx, md)
}

// greeting is an encoded Hello, and what can change in it.
type greeting struct {
	oldest  uint32
	address string // of this member
	text    []string
}

// greeting returns the Hello to the member. It is encoded again when the version in use has risen, or this member's address
// has changed.
func (l *link) greeting() *greeting {
	oldest, address := l.t.oldestVersion(), l.t.self()
	g := l.lastGreeting.Load()
	if g == nil || g.oldest != oldest || g.address != address {
		g = &greeting{oldest, address, l.t.hello(l.member).Get(helloKey)}
		l.lastGreeting.Store(g)
	}
	return g
}
