package etcd_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net/url"
	"os"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
	"github.com/leasekeeper/leasekeeper/internal/endpoints/endpointstest"
	"github.com/leasekeeper/leasekeeper/server"
)

// start starts a server for the examples.
func start() (addr string, stop func()) {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	addr, end, err := endpointstest.Serve("127.0.0.1:0", dir, server.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return addr, func() {
		if err := end(); err != nil {
			log.Print(err)
		}
		os.RemoveAll(dir)
	}
}

func ExampleNew() {
	addr, stop := start()
	defer stop()
	ctx := context.Background()

	b, err := etcd.New(etcd.Config{Endpoints: []string{addr}, Prefix: "leases"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)
	info, err := b.Get(ctx, "jobs/nightly")
	fmt.Println(info.Held, err)
	// Output: false <nil>
}

func ExampleParseURL() {
	u, err := url.Parse("etcd://app:secret@host1,host2/leases")
	if err != nil {
		log.Fatal(err)
	}
	cfg, err := etcd.ParseURL(u)
	if err != nil {
		log.Fatal(err)
	}
	cfg.RequestTimeout = time.Second // a setting that URLs do not have
	fmt.Println(cfg.Endpoints, cfg.Prefix, cfg.Username)
	// Output: [host1 host2] leases app
}

// A transaction that commits only while the lease holds its name. Most programs get a lease from the root package, and the
// backend's reference to it from Raw.
func ExampleCompare() {
	addr, stop := start()
	defer stop()
	ctx := context.Background()
	b, err := etcd.New(etcd.Config{Endpoints: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)
	claim := backend.Claim{Name: "jobs/nightly", Holder: backend.Holder{ID: "host-1"}, TTL: 15 * time.Second}
	rand.Read(claim.ID[:])
	lease, _, err := b.Claim(ctx, claim)
	if err != nil {
		log.Fatal(err)
	}

	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	report := func(text string) bool {
		held, err := etcd.Compare(lease)
		if err != nil {
			log.Fatal(err)
		}
		put := &pb.PutRequest{Key: []byte("report"), Value: []byte(text)}
		resp, err := pb.NewKVClient(conn).Txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{held},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}},
		})
		if err != nil {
			log.Fatal(err)
		}
		return resp.Succeeded
	}
	fmt.Println("while held:", report("done"))
	if err := b.Release(ctx, lease); err != nil {
		log.Fatal(err)
	}
	fmt.Println("after that:", report("too late"))
	// Output:
	// while held: true
	// after that: false
}

// The same condition for etcd's own client is
//
//	clientv3.Compare(clientv3.CreateRevision(string(key)), "=", created)
func ExampleKey() {
	addr, stop := start()
	defer stop()
	ctx := context.Background()
	b, err := etcd.New(etcd.Config{Endpoints: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close(ctx)
	lease, grant, err := b.Claim(ctx, backend.Claim{
		ID: backend.ID{7: 0x2a}, Name: "jobs/nightly", Holder: backend.Holder{ID: "host-1"}, TTL: 15 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	key, created, err := etcd.Key(lease)
	if err != nil {
		log.Fatal(err)
	}
	id, err := etcd.LeaseID(lease)
	fmt.Println(string(key), created == int64(grant.Token), id, err)
	// Output: jobs/nightly/2a true 42 <nil>
}
