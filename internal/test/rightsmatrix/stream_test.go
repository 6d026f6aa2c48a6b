package rightsmatrix

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
)

// stream is a stream that a caller has opened, or a call that waits for its answer.
type stream struct {
	send    func(proto.Message) error
	receive func() outcome // of the next answer, or of the end of the stream
}

// open opens a stream with its first message. path is that of a gateway; "" for gRPC. The stream ends with the context.
func (c *client) open(ctx context.Context, m *method, path, token string, first proto.Message) (*stream, error) {
	if path == "" {
		return c.openGRPC(withToken(ctx, token), m, first)
	}
	return c.openJSON(ctx, m, path, token, first)
}

// openGRPC opens a stream over gRPC, where a call with one answer has the form of a stream too.
func (c *client) openGRPC(ctx context.Context, m *method, first proto.Message) (*stream, error) {
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, m.name)
	if err == nil {
		err = s.SendMsg(first)
	}
	if err == nil && !m.desc.IsStreamingClient() {
		err = s.CloseSend()
	}
	return &stream{
		send: func(request proto.Message) error { return s.SendMsg(request) },
		receive: func() outcome {
			answer := newMessage(m.desc.Output())
			if err := s.RecvMsg(answer); err == io.EOF {
				return "end"
			} else if err != nil {
				return outcomeOf(status.Code(err), status.Convert(err).Message())
			}
			return sign(answer, outcomeOfAnswer(answer))
		},
	}, err
}

// openJSON opens a stream of a gateway. The client goes on sending while it receives, where the method allows that.
func (c *client) openJSON(ctx context.Context, m *method, path, token string, first proto.Message) (*stream, error) {
	text, err := protojson.Marshal(first)
	if err != nil {
		return nil, err
	}
	body, in := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.scheme+"://"+c.address(path)+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if m.desc.IsStreamingClient() {
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(io.MultiReader(bytes.NewReader(text), body)), -1, nil
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	lines := make(chan outcome, 64) // more than a stream of these tests receives
	go func() {
		defer close(lines)
		defer body.CloseWithError(context.Canceled)
		resp, err := c.http.Do(r)
		if err != nil {
			lines <- outcome(err.Error())
			return
		}
		defer resp.Body.Close()
		for answers := bufio.NewReader(resp.Body); ; {
			line, err := answers.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 {
				answer, got := parseJSON(m, line)
				lines <- sign(answer, got)
			}
			if err != nil {
				return
			}
		}
	}()
	return &stream{
		send: func(request proto.Message) error {
			text, err := protojson.Marshal(request)
			if err == nil {
				_, err = in.Write(text)
			}
			return err
		},
		receive: func() outcome {
			got, more := <-lines
			if !more {
				return "end"
			}
			return got
		},
	}, nil
}

// sign is an outcome that tells more of an answer which is no refusal.
func sign(answer proto.Message, got outcome) outcome {
	if got != ok {
		return got
	}
	switch a := answer.(type) {
	case *pb.WatchResponse:
		if a.Created {
			return "created"
		}
		return outcome(fmt.Sprint(len(a.Events), " events"))
	case *leasekeeperv1.AcquireResponse:
		return outcome(a.State.String())
	case *leasekeeperv1.HoldResponse:
		var states []string
		for _, one := range a.Answers {
			states = append(states, one.State.String())
		}
		return outcome(strings.Join(states, " "))
	case *leasekeeperv1.WatchResponse:
		if a.Begin || a.Synced {
			return "listing"
		}
		return outcome(fmt.Sprint(len(a.Events), " events"))
	}
	return ok
}
