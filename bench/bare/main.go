package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
)

func main() {
	if len(os.Args) != 2 && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: bare host:port [log]")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2:]...); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

// serve serves on addr. With the path of a log, grants and puts are answered once they are in it and it is synced.
func serve(addr string, log ...string) error {
	var l *syncedLog
	if len(log) > 0 {
		var err error
		if l, err = createLog(log[0]); err != nil {
			return err
		}
		defer l.close()
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	pb.RegisterKVServer(s, kv{log: l})
	pb.RegisterLeaseServer(s, &lease{log: l})
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		s.Stop()
	}()
	return s.Serve(listener)
}

func header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1 << 60, MemberId: 1 << 61, Revision: 1 << 20, RaftTerm: 2}
}

type kv struct {
	pb.UnimplementedKVServer
	log *syncedLog // nil if nothing is written
}

// valueBytes is the size of the values that the load writes, and so reads from the others.
const valueBytes = 100

var value = bytes.Repeat([]byte{'v'}, valueBytes)

func (kv) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	found := &mvccpb.KeyValue{Key: r.Key, Value: value, CreateRevision: 1 << 19, ModRevision: 1 << 20, Version: 7}
	return &pb.RangeResponse{Header: header(), Kvs: []*mvccpb.KeyValue{found}, Count: 1}, nil
}

func (s kv) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := s.log.append(r); err != nil {
		return nil, err
	}
	return &pb.PutResponse{Header: header()}, nil
}

type lease struct {
	pb.UnimplementedLeaseServer
	next atomic.Int64
	log  *syncedLog // nil if nothing is written
}

func (l *lease) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	id := r.ID
	if id == 0 {
		id = 1<<60 + l.next.Add(1)
	}
	if err := l.log.append(r); err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{Header: header(), ID: id, TTL: r.TTL}, nil
}

func (l *lease) LeaseKeepAlive(stream grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: header(), ID: r.ID, TTL: 1 << 10}); err != nil {
			return err
		}
	}
}
