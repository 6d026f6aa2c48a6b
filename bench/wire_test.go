package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestMessagesLargerThanAFrame sends messages that are larger than a frame, and than the first window of a request
// or a connection.
func TestMessagesLargerThanAFrame(t *testing.T) {
	const messages, wanted = 3, 40
	body := bytes.Repeat([]byte("0123456789"), 20_000)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			var got wrapperspb.BytesValue
			if err := stream.RecvMsg(&got); err != nil {
				return err
			}
			if !bytes.Equal(got.Value, body) {
				return errors.New("a message is not what was sent")
			}
			if err := stream.SendMsg(wrapperspb.UInt32(uint32(len(got.Value)))); err != nil {
				return err
			}
		}
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked, answered := 0, 0
	err = drive(ctx, listener.Addr().String(), &load{
		method: "/test/Stream", stream: true, slots: 2, depth: messages,
		ask: func(_ int, buf []byte) []byte {
			asked++
			return marshal(buf, wrapperspb.Bytes(body))
		},
		answer: func(_ int, message []byte) error {
			if err := holds(message, 1); err != nil {
				return fmt.Errorf("an answer without the length: %w", err)
			}
			return nil
		},
		counted: func() {
			if answered++; answered == wanted {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || answered < wanted || asked < answered {
		t.Errorf("%d messages were asked and %d answered: %v", asked, answered, err)
	}
}
