//go:build unix

package databases

import "testing"

func TestRedisServerStarts(t *testing.T) {
	s := NewRedis(t)
	if err := s.ping(); err != nil {
		t.Error(err)
	}
	socket, one := s.Database(t)
	again, two := s.Database(t)
	if socket != again || one == two {
		t.Errorf("database %d of %s, then %d of %s", one, socket, two, again)
	}
}
