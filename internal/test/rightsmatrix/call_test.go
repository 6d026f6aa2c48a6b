package rightsmatrix

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// callLimit bounds a request. All answer at once, unless there is no leader.
const callLimit = 10 * time.Second

// outcome is what a caller receives: a code of gRPC, or one of the names below where a code has several meanings.
type outcome string

const (
	ok        outcome = "OK"
	userEmpty outcome = "UserEmpty"    // etcd's error without a user: InvalidArgument
	noUser    outcome = "NoSuchUser"   // etcd's error for a certificate whose common name is no user: FailedPrecondition
	badToken  outcome = "InvalidToken" // Unauthenticated
)

// outcomeOf names an error.
func outcomeOf(code codes.Code, message string) outcome {
	switch {
	case code == codes.InvalidArgument && message == "etcdserver: user name is empty":
		return userEmpty
	case code == codes.FailedPrecondition && message == "etcdserver: user name not found":
		return noUser
	case code == codes.Unauthenticated && strings.Contains(message, "token"):
		return badToken
	case code == codes.Unknown:
		return "Unknown(" + outcomeOfText(message) + ")"
	}
	return outcome(code.String())
}

// errorText is an error of gRPC as text.
var errorText = regexp.MustCompile(`^rpc error: code = (\w+) desc = (.*)$`)

// outcomeOfText names an error whose code only its text has.
func outcomeOfText(text string) outcome {
	if found := errorText.FindStringSubmatch(text); found != nil {
		text = found[2]
	}
	for _, e := range []error{rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCUserEmpty, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCUserNotFound} {
		if status.Convert(e).Message() == text {
			return outcomeOf(status.Code(e), text)
		}
	}
	return outcome(strings.ReplaceAll(text, " ", "_"))
}

// outcomeOfAnswer looks for a refusal in an answer.
func outcomeOfAnswer(answer proto.Message) outcome {
	switch a := answer.(type) {
	case *pb.WatchResponse:
		if a.Canceled {
			return outcomeOfText(a.CancelReason)
		}
	case *leasekeeperv1.HoldResponse:
		if len(a.Answers) > 0 && a.Answers[0].State == leasekeeperv1.HoldAnswer_FAILED {
			return outcomeOf(codes.Code(a.Answers[0].Code), a.Answers[0].Error)
		}
	case *leasekeeperv1.RenewResponse:
		if len(a.Refused) > 0 {
			return outcome("refused:" + a.Refused[0].State.String())
		}
	case *pb.LeaseKeepAliveResponse:
		if a.TTL == 0 {
			return "TTL0"
		}
	}
	return ok
}

// newMessage makes an empty message.
func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(fmt.Sprintf("%s: %v", d.FullName(), err))
	}
	return t.New().Interface()
}

// withToken returns the context of a request with a token; "" for none.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "token", token)
}

// overGRPC sends the first message of a call, and receives the first answer.
func (c *client) overGRPC(ctx context.Context, m *method, token string, request proto.Message) outcome {
	ctx, cancel := context.WithTimeout(withToken(ctx, token), callLimit)
	defer cancel()
	answer := newMessage(m.desc.Output())
	var err error
	if !m.streams() {
		err = c.conn.Invoke(ctx, m.name, request, answer)
	} else {
		var stream grpc.ClientStream
		stream, err = c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, m.name)
		if err == nil {
			if err = stream.SendMsg(request); err == io.EOF {
				err = nil // RecvMsg has the reason
			}
		}
		if err == nil && !m.desc.IsStreamingClient() {
			err = stream.CloseSend()
		}
		if err == nil {
			if err = stream.RecvMsg(answer); err == io.EOF {
				err = nil // a stream without an answer
			}
		}
		for err == nil && m.bounded() {
			if rest := stream.RecvMsg(newMessage(m.desc.Output())); rest != nil {
				break
			}
		}
	}
	if err != nil {
		return outcomeOf(status.Code(err), status.Convert(err).Message())
	}
	return outcomeOfAnswer(answer)
}

// jsonError is an error of a gateway.
type jsonError struct {
	Code    codes.Code `json:"code"`
	Message string     `json:"message"`
}

// overJSON sends the same request to a path of a gateway.
func (c *client) overJSON(ctx context.Context, m *method, path, token string, request proto.Message) outcome {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	text, err := protojson.Marshal(request)
	if err != nil {
		return outcome("marshal: " + err.Error())
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.scheme+"://"+c.address(path)+path, bytes.NewReader(text))
	if err != nil {
		return outcome(err.Error())
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return outcome(err.Error())
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	line, err := body.ReadBytes('\n')
	if err != nil && err != io.EOF {
		return outcome(err.Error())
	}
	if m.bounded() {
		_, _ = io.Copy(io.Discard, body) // an error ends the stream too
	}
	if len(line) == 0 {
		return ok // a stream without an answer
	}
	_, got := parseJSON(m, line)
	return got
}

// address is where a member serves a path of a gateway.
func (c *client) address(path string) string {
	if strings.HasPrefix(path, "/v1/") {
		return c.member.server.HTTPAddr()
	}
	return c.member.server.Addr()
}

// parseJSON reads an answer, or a line of a stream. The answer is nil if it is an error.
func parseJSON(m *method, line []byte) (proto.Message, outcome) {
	var both struct {
		jsonError
		Error  json.RawMessage `json:"error"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(line, &both); err != nil {
		return nil, outcome(fmt.Sprintf("%q: %v", line, err))
	}
	if inner := new(jsonError); json.Unmarshal(both.Error, inner) == nil && inner.Code != 0 {
		both.jsonError = *inner
	}
	if both.Code != 0 {
		return nil, outcomeOf(both.Code, both.Message)
	}
	if both.Result != nil {
		line = both.Result
	}
	answer := newMessage(m.desc.Output())
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(line, answer); err != nil {
		return nil, outcome(fmt.Sprintf("%q: %v", line, err))
	}
	return answer, outcomeOfAnswer(answer)
}
