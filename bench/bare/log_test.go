package main

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Every request is in the file when append returns, whichever request it shared a sync with.
func TestEveryRequestIsInTheLogWhenAppendReturns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := createLog(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			request := &pb.PutRequest{Key: []byte{'k', byte(i), 'k'}, Value: value}
			want, err := proto.Marshal(request)
			if err != nil {
				t.Error(err)
			}
			if err := l.append(request); err != nil {
				t.Error(err)
			}
			if written, err := os.ReadFile(path); err != nil || !bytes.Contains(written, want) {
				t.Errorf("request %d is not in the log after append returned, %v", i, err)
			}
		})
	}
	callers.Wait()
}

func TestLogBeginsAgainAtItsEnd(t *testing.T) {
	l, err := createLog(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	request := &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)}
	for range 2 * logBytes >> 20 {
		if err := l.append(request); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := l.file.Stat(); err != nil || info.Size() != logBytes {
		t.Errorf("the log has %d bytes, want %d; %v", info.Size(), int64(logBytes), err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}
