package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	etcdjson "go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/leasekeeper/leasekeeper/api/v3electionpb"
	"github.com/leasekeeper/leasekeeper/api/v3lockpb"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/paced"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// etcdJSON serves etcd's API as JSON over HTTP, as etcd does: below /v3/ on the client port. It sends requests to the
// gateway's services, as a client without any right of its own. They act for the identity that the caller's connection
// has proven.
type etcdJSON struct {
	s    *Server
	mux  *runtime.ServeMux
	open openJSON
}

// bodyShare is the number of bytes of memory that a byte of a JSON request takes: as text, decoded, and encoded again.
// answerShare is that of a byte of an answer: read, encoded, decoded again, and as text, which is longer.
const (
	bodyShare   = 3
	answerShare = 6
)

// jsonRequestKey is the metadata with the number of an open request. Only the gateway sets it.
const jsonRequestKey = "leasekeeper-json-request-bin"

func newEtcdJSON(s *Server, conn *grpc.ClientConn) (*etcdJSON, error) {
	g := &etcdJSON{s: s}
	g.mux = runtime.NewServeMux(
		// The form is etcd's: names as in the .proto files, no zero values, unknown fields are ignored.
		runtime.WithMarshalerOption(runtime.MIMEWildcard, &boundedJSON{
			JSONPb: runtime.JSONPb{
				MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
				UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
			},
			most: g.bodyBytes(),
		}),
		runtime.WithMetadata(func(ctx context.Context, r *http.Request) metadata.MD {
			return metadata.Join(admission.IdentityOfRequest(r).Metadata(), admission.OriginOfRequest(r), tracing.Metadata(r), jsonRequestOf(ctx).metadata())
		}),
		runtime.WithIncomingHeaderMatcher(passesHeader),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithErrorHandler(func(ctx context.Context, mux *runtime.ServeMux, out runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
			runtime.DefaultHTTPErrorHandler(ctx, mux, out, w, r, jsonRequestOf(ctx).reason(err))
		}),
		runtime.WithStreamErrorHandler(func(ctx context.Context, err error) *status.Status {
			return status.Convert(jsonRequestOf(ctx).reason(err))
		}),
	)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		etcdjson.RegisterKVHandler, etcdjson.RegisterWatchHandler, etcdjson.RegisterLeaseHandler,
		etcdjson.RegisterClusterHandler, etcdjson.RegisterMaintenanceHandler, etcdjson.RegisterAuthHandler,
		v3lockpb.RegisterLockHandler, v3electionpb.RegisterElectionHandler,
	} {
		if err := register(context.Background(), g.mux, conn); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// passesHeader returns the metadata that a header of a client becomes. Only the wish for a leader passes, besides
// Authorization, which the library always passes.
func passesHeader(name string) (key string, passes bool) {
	return rpctypes.MetadataRequireLeaderKey, strings.EqualFold(name, runtime.MetadataHeaderPrefix+rpctypes.MetadataRequireLeaderKey)
}

// bodyBytes is the largest message of a client, in bytes of JSON. Keys and values are in base64, which is a third longer.
func (g *etcdJSON) bodyBytes() int { return (g.s.cfg.MaxRequestBytes + requestOverhead) / 3 * 4 }

// longBodies are the paths whose requests are streams of messages.
var longBodies = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// ServeHTTP implements [http.Handler].
func (g *etcdJSON) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := g.open.begin(connOf(r))
	defer g.open.end(q)
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), jsonKey{}, q))
	defer cancel()
	q.cancel, r = cancel, r.WithContext(ctx)
	if err := g.prepare(w, r, q); err != nil {
		g.refuse(w, r, err)
		return
	}
	out, end := paced.NewWriter(w, g.s.life.Context())
	defer end()
	w.Header().Set("Cache-Control", "no-store")
	g.mux.ServeHTTP(out, r)
}

// refuse answers a request in the form of etcd's errors.
func (g *etcdJSON) refuse(w http.ResponseWriter, r *http.Request, err error) {
	_, out := runtime.MarshalerForRequest(g.mux, r)
	runtime.DefaultHTTPErrorHandler(r.Context(), g.mux, out, w, r, unreadable(err))
}

// unreadable returns the error of a request that could not be read.
func unreadable(err error) error {
	if huge := (*http.MaxBytesError)(nil); errors.As(err, &huge) {
		return rpctypes.ErrGRPCRequestTooLarge
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.InvalidArgument, "the request could not be read: "+err.Error())
}

// prepare bounds the memory and the duration of reading a request, and removes the bounds on the duration of serving it.
func (g *etcdJSON) prepare(w http.ResponseWriter, r *http.Request, q *jsonRequest) error {
	c := http.NewResponseController(w)
	body := &countedBody{ReadCloser: r.Body, request: q}
	if longBodies[r.URL.Path] {
		r.Body = body
		return errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}), c.EnableFullDuplex())
	}
	body.ReadCloser = http.MaxBytesReader(w, r.Body, int64(g.bodyBytes()))
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{}))
}
