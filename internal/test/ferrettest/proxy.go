package ferrettest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Fate is what happens to a command.
type Fate uint8

// The fates of a command.
const (
	Pass        Fate = iota
	LoseRequest      // the server never receives it, and the connection breaks
	LoseAnswer       // the server executes it, and the connection breaks
)

// Proxy stands in front of a server and lets one command through at a time.
type Proxy struct {
	backend  string
	listener net.Listener
	one      sync.Mutex // held by the command under way

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
	judge  func(command string, body bson.Raw) Fate
	served sync.WaitGroup
}

func newProxy(backend string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{backend: backend, listener: listener, conns: make(map[net.Conn]bool)}
	p.served.Go(p.accept)
	return p, nil
}

// URI returns the URI for clients.
func (p *Proxy) URI() string { return "mongodb://" + p.listener.Addr().String() + "/" }

// Judge sets the function that decides the fate of each command, by its name and its body. One goroutine at a
// time calls it. With nil all commands pass.
func (p *Proxy) Judge(judge func(command string, body bson.Raw) Fate) {
	p.one.Lock()
	defer p.one.Unlock()
	p.judge = judge
}

// Break ends all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Break()
	p.served.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.served.Go(func() { p.serveClient(client) })
	}
}

// keep remembers a connection, so that it can be broken.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// serveClient carries the commands of one client over a connection of its own, until either side breaks.
func (p *Proxy) serveClient(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	server, err := net.Dial("tcp", p.backend)
	if err != nil || !p.keep(server) {
		return
	}
	defer p.drop(server)
	for {
		request, err := readMessage(client)
		if err != nil {
			return
		}
		answer, err := p.carry(server, request)
		if err != nil {
			return
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}

var errLost = errors.New("lost on the way")

// carry executes one command, alone.
func (p *Proxy) carry(server net.Conn, request message) (answer message, err error) {
	p.one.Lock()
	defer p.one.Unlock()
	name, body := request.command()
	if name == serializes {
		return reply(request, bson.D{{Key: "ok", Value: 1.0}})
	}
	fate := Pass
	if p.judge != nil && name != "" {
		fate = p.judge(name, body)
	}
	if fate == LoseRequest {
		return nil, errLost
	}
	if _, err := server.Write(request); err != nil {
		return nil, err
	}
	if request.silent() {
		return nil, nil
	}
	answer, err = readMessage(server)
	if fate == LoseAnswer {
		return nil, errLost
	}
	return answer, err
}

// serializes is the command by which package mongodb asks whether it talks to a proxy like this.
const serializes = "leasekeeperSerializes"

// message is one message of the wire protocol, with its header.
type message []byte

const (
	headerSize  = 16
	maxMessage  = 48_000_000
	opMsg       = 2013
	moreToCome  = 1 << 1
	kindBody    = 0
	flagsSize   = 4
	kindSize    = 1
	bodyStarts  = headerSize + flagsSize + kindSize
	opCodeAt    = 12
	requestIDAt = 4
)

func readMessage(r io.Reader) (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n < headerSize || n > maxMessage {
		return nil, fmt.Errorf("a message says it has %d bytes", n)
	}
	m := make(message, n)
	copy(m, size[:])
	_, err := io.ReadFull(r, m[len(size):])
	return m, err
}

func (m message) isMsg() bool {
	return len(m) > bodyStarts && binary.LittleEndian.Uint32(m[opCodeAt:]) == opMsg
}

// silent reports whether the sender wants no answer.
func (m message) silent() bool {
	return m.isMsg() && binary.LittleEndian.Uint32(m[headerSize:])&moreToCome != 0
}

// command returns the name and the body of a command. For a message of another kind it returns nothing.
func (m message) command() (name string, body bson.Raw) {
	if !m.isMsg() || m[bodyStarts-kindSize] != kindBody {
		return "", nil
	}
	size := binary.LittleEndian.Uint32(m[bodyStarts:])
	if int(size) > len(m)-bodyStarts {
		return "", nil
	}
	body = bson.Raw(m[bodyStarts : bodyStarts+int(size)])
	first, err := body.IndexErr(0)
	if err != nil {
		return "", nil
	}
	return first.Key(), body
}

// reply makes an answer to a request.
func reply(request message, body bson.D) (message, error) {
	document, err := bson.Marshal(body)
	if err != nil {
		return nil, err
	}
	m := make(message, bodyStarts, bodyStarts+len(document))
	m = append(m, document...)
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	copy(m[requestIDAt+4:requestIDAt+8], request[requestIDAt:requestIDAt+4])
	binary.LittleEndian.PutUint32(m[opCodeAt:], opMsg)
	return m, nil
}
