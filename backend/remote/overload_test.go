package remote_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/server"
)

// A waiter for which the server has no place receives that cause. Its error is not that its time was over, or that the name
// was held.
func TestRefusedWaiterReceivesTheCause(t *testing.T) {
	s := startOwn(t, server.Config{MaxRequests: 2})
	keeper := func() *leasekeeper.Keeper {
		k, err := leasekeeper.New(open(t, s.Addr), leasekeeper.WithTTL(time.Minute))
		ok(t, err)
		t.Cleanup(func() { ok(t, k.Shutdown(limited(t))) })
		return k
	}
	k, other := keeper(), keeper()
	held, err := k.Acquire(limited(t), "busy")
	ok(t, err)
	waiting, cancel := context.WithCancel(limited(t))
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		_, err := other.Acquire(waiting, "busy")
		waited <- err
	}()
	eventually(t, "one waits", func() bool {
		info, err := k.Get(limited(t), "busy")
		return err == nil && info.Waiting == 1
	})
	short, end := context.WithTimeout(limited(t), time.Second)
	defer end()
	_, err = k.Acquire(short, "free")
	if !errors.Is(err, leasekeeper.ErrUnavailable) || !strings.Contains(err.Error(), "as many waiting claims on this server as one client may have") {
		t.Errorf("the error is %v", err)
	}
	cancel()
	<-waited
	ok(t, held.Release(limited(t)))
}
