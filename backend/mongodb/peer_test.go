package mongodb

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// peer speaks the wire protocol and answers as the test says. It stands for servers that no test can start: it
// shows what a replica set receives, and how its answers are read.
type peer struct {
	t        *testing.T
	listener net.Listener
	hello    bson.D // added to the answer to hello

	mu     sync.Mutex
	asked  []asked // all commands except greetings
	script func(name string, body bson.Raw) bson.D
	conns  map[net.Conn]bool
	closed bool
	served sync.WaitGroup
}

// asked is one command.
type asked struct {
	name string
	body bson.Raw
}

// Fields of the answer to hello.
var (
	ofASet    = bson.D{{Key: "setName", Value: "rs"}}
	ofARouter = bson.D{{Key: "msg", Value: "isdbgrid"}}
	ofNothing = bson.D{}
)

// hangUp stands for no answer: the connection breaks.
var hangUp = bson.D{{Key: "hang up", Value: true}}

// newPeer starts a peer. If script returns nil for a command, the peer answers as an empty database.
func newPeer(t *testing.T, hello bson.D, script func(name string, body bson.Raw) bson.D) *peer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, listener: listener, hello: hello, script: script, conns: make(map[net.Conn]bool)}
	p.served.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns[c] = true
			if p.closed {
				_ = c.Close()
			}
			p.mu.Unlock()
			p.served.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.mu.Lock()
		p.closed = true
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.served.Wait()
	})
	return p
}

// answers sets another script.
func (p *peer) answers(script func(name string, body bson.Raw) bson.D) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = script
}

// commands returns the commands of that name so far.
func (p *peer) commands(name string) (bodies []bson.Raw) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.asked {
		if a.name == name {
			bodies = append(bodies, a.body)
		}
	}
	return bodies
}

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

func (p *peer) serve(c net.Conn) {
	defer c.Close()
	for {
		header := make([]byte, 16)
		if _, err := io.ReadFull(c, header); err != nil {
			return
		}
		rest := make([]byte, binary.LittleEndian.Uint32(header)-16)
		if _, err := io.ReadFull(c, rest); err != nil {
			return
		}
		code, at := binary.LittleEndian.Uint32(header[12:]), 5
		if code == opQuery {
			for at = 4; rest[at] != 0; at++ {
			}
			at += 1 + 8
		}
		body := bson.Raw(rest[at:])
		body = body[:binary.LittleEndian.Uint32(body)]
		if code == opMsg {
			body = withSequence(body, rest[at+len(body):])
		}
		answer := p.answer(body)
		if len(answer) > 0 && answer[0].Key == hangUp[0].Key {
			return
		}
		document, err := bson.Marshal(answer)
		if err != nil {
			p.t.Error(err)
			return
		}
		reply, kind := make([]byte, 16, 64+len(document)), uint32(opMsg)
		if code == opQuery {
			kind = opReply
			reply = append(reply, make([]byte, 16)...)
			reply = append(reply, 1, 0, 0, 0)
		} else {
			reply = append(reply, 0, 0, 0, 0, 0)
		}
		reply = append(reply, document...)
		binary.LittleEndian.PutUint32(reply, uint32(len(reply)))
		copy(reply[8:12], header[4:8])
		binary.LittleEndian.PutUint32(reply[12:], kind)
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

// withSequence returns a command with the list that the driver sends after it, if there is one.
func withSequence(body bson.Raw, rest []byte) bson.Raw {
	if len(rest) == 0 {
		return body
	}
	rest = rest[1+4:] // the kind and size of the section
	end := bytes.IndexByte(rest, 0)
	name, list := string(rest[:end]), bson.A{}
	for rest = rest[end+1:]; len(rest) > 0; {
		size := binary.LittleEndian.Uint32(rest)
		list, rest = append(list, bson.Raw(rest[:size])), rest[size:]
	}
	array, err := bson.Marshal(bson.D{{Key: name, Value: list}})
	if err != nil {
		panic(err)
	}
	whole := slices.Concat(body[:len(body)-1], array[4:])
	binary.LittleEndian.PutUint32(whole, uint32(len(whole)))
	return bson.Raw(whole)
}

// answer returns the answer to a command.
func (p *peer) answer(body bson.Raw) bson.D {
	first, err := body.IndexErr(0)
	if err != nil {
		p.t.Error(err)
		return hangUp
	}
	name := first.Key()
	p.mu.Lock()
	script := p.script
	switch name {
	case "hello", "isMaster", "ismaster", "endSessions":
	default:
		p.asked = append(p.asked, asked{name, body})
	}
	p.mu.Unlock()
	ok := bson.E{Key: "ok", Value: 1.0}
	if script != nil {
		if answer := script(name, body); answer != nil {
			return over(bson.D{ok}, answer)
		}
	}
	switch name {
	case "hello", "isMaster", "ismaster":
		address := p.listener.Addr().String()
		greeting := bson.D{
			{Key: "isWritablePrimary", Value: true}, {Key: "ismaster", Value: true}, {Key: "maxWireVersion", Value: int32(21)},
			{Key: "minWireVersion", Value: int32(0)}, {Key: "maxBsonObjectSize", Value: int32(16 << 20)}, {Key: "maxMessageSizeBytes", Value: int32(48000000)},
			{Key: "maxWriteBatchSize", Value: int32(100000)}, {Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
			{Key: "hosts", Value: bson.A{address}}, {Key: "me", Value: address}, ok,
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return over(greeting, p.hello)
	case "find", "aggregate", "listCollections", "listIndexes":
		return append(cursor(), ok)
	case "insert", "update", "delete":
		return bson.D{{Key: "n", Value: int32(1)}, ok}
	}
	return bson.D{ok}
}

// over returns a document with fields of another in place of its own.
func over(d, by bson.D) bson.D {
	result := append(bson.D{}, by...) // first, as a command's name is
	for _, e := range d {
		has := false
		for _, other := range by {
			has = has || other.Key == e.Key
		}
		if !has {
			result = append(result, e)
		}
	}
	return result
}

// cursor returns an answer with all documents.
func cursor(documents ...any) bson.D {
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(0)}, {Key: "ns", Value: "app.x"}, {Key: "firstBatch", Value: append(bson.A{}, documents...)},
	}}}
}

// refused returns an answer with an error.
func refused(code int32, labels ...string) bson.D {
	return bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: code}, {Key: "errmsg", Value: "no"}, {Key: "errorLabels", Value: labels}}
}

// client returns a client of the peer.
func (p *peer) client(o ...*options.ClientOptions) *mongo.Client {
	p.t.Helper()
	base := options.Client().ApplyURI("mongodb://" + p.listener.Addr().String() + "/?directConnection=true").SetServerSelectionTimeout(2 * time.Second)
	client, err := mongo.Connect(append([]*options.ClientOptions{base}, o...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

// namespaceOf answers a read of the namespace's document, and nothing else.
func namespaceOf(mode string) func(name string, body bson.Raw) bson.D {
	return func(name string, body bson.Raw) bson.D {
		if from, _ := body.Lookup("find").StringValueOK(); name == "find" && from == "leasekeeper_namespaces" {
			return cursor(namespace{ID: DefaultNamespace, Mode: mode, Version: version, Floor: 7})
		}
		return nil
	}
}

// openStore opens a store on the peer, which knows its namespace.
func (p *peer) openStore(c Config) *Store {
	p.t.Helper()
	script := p.script
	mode := byWriter
	if c.StoreClock {
		mode = byStore
	}
	p.answers(namespaceOf(mode))
	s, err := New(p.t.Context(), p.client().Database("app"), c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = s.Close(context.Background()) })
	p.answers(func(name string, body bson.Raw) bson.D {
		if script != nil {
			if answer := script(name, body); answer != nil {
				return answer
			}
		}
		return namespaceOf(mode)(name, body)
	})
	return s
}
