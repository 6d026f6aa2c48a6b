package ferrettest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend/mongodb"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// connect returns a client of a server, which is disconnected when the test ends.
func connect(t testing.TB, uri string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// least hides the optional abilities that FerretDB lacks, and that the store refuses only when they are used.
type least struct {
	claim.Store
	claim.Batcher
	claim.Gatherer
	claim.Clocks
	claim.Preferrer
}

// databaseOf returns a test's own database: for most commands FerretDB reads all documents of a collection. The
// database is dropped when the test ends.
func databaseOf(t testing.TB, client *mongo.Client) *mongo.Database {
	sum := sha256.Sum256([]byte(t.Name()))
	db := client.Database("leasekeeper_test_" + hex.EncodeToString(sum[:6]))
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return db
}

// config returns the configuration of the suites for stores, for a server at uri.
func config(t *testing.T, uri string, ferret bool) claimtest.Config {
	shared := connect(t, uri)
	c := claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			s, err := mongodb.New(t.Context(), databaseOf(t, shared), mongodb.Config{Namespace: namespace, StoreClock: storeClock})
			if err != nil || !ferret {
				return s, err
			}
			return least{s, s, s, s, s}, nil
		},
		Cannot:    []string{claimtest.Local, claimtest.Bound},
		Precision: time.Millisecond,
		Damage: func(t testing.TB, namespace, name string) {
			_, err := databaseOf(t, shared).Collection(mongodb.DefaultPrefix+"leases").UpdateByID(t.Context(), namespace+"/"+name,
				bson.D{{Key: "$set", Value: bson.D{{Key: "op", Value: int32(5)}}}})
			if err != nil {
				t.Fatal(err)
			}
		},
	}
	if ferret {
		c.Cannot = append(c.Cannot, claimtest.Notify, claimtest.Judge)
	}
	return c
}

func TestStoreOnFerretDB(t *testing.T) {
	claimtest.Run(t, config(t, Start(t).URI(), true))
}

func TestStoreOnMongoDB(t *testing.T) {
	claimtest.Run(t, config(t, mongod(t), false))
}

// mongod returns the URI of a replica set of a real mongod, or skips the test.
func mongod(t *testing.T) string {
	t.Helper()
	uri := os.Getenv("MONGODB_URI")
	if uri == "" {
		if required.Is("mongodb") {
			t.Fatal("LEASEKEEPER_TEST_REQUIRE has mongodb, and MONGODB_URI is not set")
		}
		t.Skip("not run on a real mongod: MONGODB_URI does not name a replica set")
	}
	if _, err := url.Parse(uri); err != nil {
		t.Fatal("MONGODB_URI is no URL")
	}
	return uri
}
