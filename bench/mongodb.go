package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	_ "github.com/leasekeeper/leasekeeper/backend/mongodb" // mongodb://
)

// mongoURI names a real mongod to measure on. Without it FerretDB is started, which speaks MongoDB's protocol.
const mongoURI = "MONGODB_URI"

// documentName is the reference on MongoDB: the lock that people usually write there.
const documentName = "expiring document"

func mongoDatabase() database {
	keeper, prepare, slow := "keeper on FerretDB", startFerret, true
	if os.Getenv(mongoURI) != "" {
		keeper, prepare, slow = "keeper on MongoDB", useMongod, false
	}
	return database{
		slow:      slow,
		reference: documentName,
		handOver:  strconv.FormatInt(goosePoll.Milliseconds(), 10),
		prepare:   prepare,
		place:     func(s *stage) (string, error) { return s.mongo.database() },
		used:      func(s *stage) time.Duration { return s.mongo.used() },
		ways: []way{
			keeperWay(keeper, func(place string) string { return place }),
			{name: documentName, open: openDocuments, renewer: newDocumentRenewer},
		},
	}
}

// mongoServer is a server that speaks MongoDB's protocol.
type mongoServer struct {
	uri   *url.URL
	pid   int // of the process; zero if it is not ours
	count int
}

// database is the URI of an empty database.
func (m *mongoServer) database() (string, error) {
	m.count++
	u := *m.uri
	if query := u.Query(); u.User != nil && !query.Has("authSource") { // else the user would be looked for in that database
		query.Set("authSource", cmp.Or(strings.Trim(u.Path, "/"), "admin"))
		u.RawQuery = query.Encode()
	}
	u.Path = fmt.Sprintf("/leasekeeper_bench_%d_%d", os.Getpid(), m.count)
	return u.String(), nil
}

func (m *mongoServer) used() time.Duration {
	if m.pid == 0 {
		return 0
	}
	return cpuTime(strconv.Itoa(m.pid))
}

// useMongod measures on a server that is there already. Its databases are dropped in the end.
func useMongod(ctx context.Context, s *stage, _ progress) error {
	u, err := url.Parse(os.Getenv(mongoURI))
	if err != nil {
		return fmt.Errorf("%s is no URL", mongoURI) // which may have a password in it
	}
	m := &mongoServer{uri: u}
	s.mongo = m
	s.Cleanup(func() {
		last := m.count
		for m.count = 0; m.count < last; {
			place, _ := m.database()
			if err := dropDatabase(context.WithoutCancel(ctx), place); err != nil {
				s.Error("a database is left:", err)
			}
		}
	})
	return nil
}

func dropDatabase(ctx context.Context, place string) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	db, err := connectDocuments(place)
	if err != nil {
		return err
	}
	return errors.Join(db.Drop(ctx), db.Client().Disconnect(ctx))
}

// startFerret builds FerretDB, with the proxy before it without which leases cannot be kept there, and starts it.
func startFerret(ctx context.Context, s *stage, say progress) error {
	t := &target{name: "FerretDB", source: filepath.Join("..", "internal", "test", "ferrettest"), pkg: "./serve"}
	if err := build(ctx, s.dir, []*target{t}, say); err != nil {
		return err
	}
	folder := filepath.Join(s.dir, "ferretdb")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	cmd := exec.Command(t.binary, folder)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	said := bufio.NewReader(out)
	s.Cleanup(func() {
		limit := time.AfterFunc(stopLimit, func() { _ = cmd.Process.Kill() })
		defer limit.Stop()
		_ = in.Close() // ends the program
		_, _ = io.Copy(io.Discard, said)
		if err := cmd.Wait(); err != nil && ctx.Err() == nil { // else it was interrupted together with us
			s.Error("FerretDB:", err, log.String())
		}
	})
	limit := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	line, err := said.ReadString('\n')
	if err != nil {
		return fmt.Errorf("FerretDB does not start: %w", err)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	s.mongo = &mongoServer{uri: u, pid: cmd.Process.Pid}
	return nil
}

// connectDocuments returns a database whose writes are as durable as those of a Keeper.
func connectDocuments(place string) (*mongo.Database, error) {
	u, err := url.Parse(place)
	if err != nil {
		return nil, err
	}
	durable := writeconcern.Majority()
	durable.Journal = new(true)
	client, err := mongo.Connect(options.Client().ApplyURI(place).SetWriteConcern(durable))
	if err != nil {
		return nil, err
	}
	return client.Database(strings.TrimPrefix(u.Path, "/")), nil
}

// documentUsers have a document for each name with the holder and the end, by the clocks of the askers.
// Lock makes it and Unlock deletes it. There is no token, and a lock that was lost is not
// noticed.
type documentUsers struct {
	locks *mongo.Collection
	ttl   time.Duration
}

func openDocuments(_ context.Context, place string, p plan) (users, error) {
	db, err := connectDocuments(place)
	if err != nil {
		return nil, err
	}
	return documentUsers{db.Collection("locks"), p.ttl}, nil
}

// close leaves it to the end of the process that the connections are closed, if it cannot be done at once.
func (u documentUsers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	_ = u.locks.Database().Client().Disconnect(ctx)
}

func (u documentUsers) locker(user int, name string) locker {
	return &documentLocker{documentUsers: u, name: name, owner: fmt.Sprintf("user %d", user)}
}

type documentLocker struct {
	documentUsers
	name, owner string
}

// Lock takes a document that is over, or makes one. If there is one that is not over, to make another fails.
func (l *documentLocker) Lock(ctx context.Context) error {
	for {
		now := time.Now()
		over := bson.M{"_id": l.name, "expires": bson.M{"$lte": now}}
		mine := bson.M{"$set": bson.M{"owner": l.owner, "expires": now.Add(l.ttl)}}
		err := l.locks.FindOneAndUpdate(ctx, over, mine, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Err()
		if !mongo.IsDuplicateKeyError(err) {
			return err
		}
		pause(ctx, goosePoll)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (l *documentLocker) Unlock(ctx context.Context) error {
	done, err := l.locks.DeleteOne(ctx, bson.M{"_id": l.name, "owner": l.owner})
	if err == nil && done.DeletedCount != 1 {
		err = fmt.Errorf("%s no longer belongs to %s", l.name, l.owner)
	}
	return err
}

func (l *documentLocker) Check() error { return nil } // it cannot tell

// documentRenewer prolongs documents.
type documentRenewer struct {
	documentUsers
	owner string
	names []string
}

func newDocumentRenewer(ctx context.Context, place string, number, leases int) (renewer, error) {
	db, err := connectDocuments(place)
	if err != nil {
		return nil, err
	}
	r := documentRenewer{documentUsers: documentUsers{db.Collection("locks"), time.Hour}, owner: fmt.Sprintf("user %d", number)}
	for i := range leases {
		l := &documentLocker{documentUsers: r.documentUsers, name: renewedName(number, i), owner: r.owner}
		if err := l.Lock(ctx); err != nil {
			r.close(ctx)
			return nil, err
		}
		r.names = append(r.names, l.name)
	}
	return r, nil
}

func (r documentRenewer) close(context.Context) { r.documentUsers.close() }

// renew prolongs one by its name, and several by whose they are.
func (r documentRenewer) renew(ctx context.Context) error {
	mine := bson.M{"owner": r.owner}
	if len(r.names) == 1 {
		mine["_id"] = r.names[0]
	}
	done, err := r.locks.UpdateMany(ctx, mine, bson.M{"$set": bson.M{"expires": time.Now().Add(r.ttl)}})
	if err == nil && done.MatchedCount != int64(len(r.names)) {
		err = fmt.Errorf("%d of %d documents were there to be prolonged", done.MatchedCount, len(r.names))
	}
	return err
}
