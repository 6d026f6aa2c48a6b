package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

const (
	// pause is the time between two attempts at a request.
	pause = 20 * time.Millisecond

	// calm is the time between the end of a fault and the next fault.
	calm = time.Second
)

func faultsFile() string { return os.Getenv("SUITE_FAULTS") }

// faults kills and replaces the members of a cluster until it is stopped.
type faults struct {
	t       testing.TB
	members *cluster.Cluster // used by this goroutine only
	file    string
	replace bool // whether the next fault is the replacement of the leader, or only its death
	stopped chan struct{}
	ended   chan struct{}
}

// startFaults kills the leader, and goes on in another goroutine. Every second leader does not come back: a new member
// replaces it.
func startFaults(t testing.TB, members *cluster.Cluster, file string) *faults {
	f := &faults{
		t: t, members: members, file: file, replace: noted(file)%2 == 1,
		stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	killed := members.KillLeader()
	go func() {
		defer close(f.ended)
		f.run(killed)
	}()
	return f
}

// stop returns when the members are left alone.
func (f *faults) stop() {
	close(f.stopped)
	<-f.ended
}

// run brings back the killed leader, or replaces it, and kills the next one.
func (f *faults) run(killed *cluster.Member) {
	for {
		if f.replace {
			f.members.ReplaceMember(killed)
			f.note("replaced", killed)
		} else {
			f.members.Restart(killed)
			f.note("killed", killed)
		}
		f.replace = !f.replace
		if f.rest() {
			return
		}
		killed = f.members.KillLeader()
	}
}

// rest waits until the next fault is due, and says whether there is none.
func (f *faults) rest() (stopped bool) {
	select {
	case <-f.stopped:
		return true
	case <-time.After(calm):
		return false
	}
}

// noted returns the number of faults in a file. No cluster runs.
func noted(file string) int {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0 // there is no file before the first fault
	}
	return strings.Count(string(data), "\n")
}

func (f *faults) note(what string, m *cluster.Member) {
	log, err := os.OpenFile(f.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(log, what, m.Name())
		if closed := log.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		f.t.Errorf("noting a fault: %v", err)
	}
}

// repeating makes a client repeat a request that has ended with Unavailable, as a program does that lives with failures. The
// suites' requests may be repeated although the first attempt has taken effect.
func repeating() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		for {
			err := invoke(ctx, method, request, answer, conn, options...)
			if status.Code(err) != codes.Unavailable {
				return err
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(pause):
			}
		}
	})
}
