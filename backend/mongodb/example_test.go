package mongodb_test

import (
	"context"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/mongodb"
)

// By URL, with the package imported if only for that.
func Example() {
	ctx := context.Background()
	keeper, err := leasekeeper.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs")
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close()
	err = keeper.Run(ctx, "jobs/nightly", func(ctx context.Context, l *leasekeeper.Lease) error {
		fmt.Println("held under token", l.Token())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// In a database that the program uses anyway.
func ExampleNew() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://db1,db2,db3/?replicaSet=rs"))
	if err != nil {
		log.Fatal(err)
	}
	store, err := mongodb.New(ctx, client.Database("app"), mongodb.Config{Namespace: "staging"})
	if err != nil {
		log.Fatal(err)
	}
	backend, err := claimed.New(store)
	if err != nil {
		log.Fatal(err)
	}
	keeper, err := leasekeeper.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	defer keeper.Close() // the client stays connected
}

// A transaction that commits only if the lease is still held.
func ExampleGate() {
	var (
		client *mongo.Client
		lease  *leasekeeper.Lease
	)
	pay := func(ctx context.Context) error {
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if err := mongodb.Gate(ctx, lease); err != nil {
				return nil, err
			}
			return client.Database("app").Collection("accounts").
				UpdateByID(ctx, "alice", bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: 10}}}})
		})
		return err
	}
	_ = pay
}
