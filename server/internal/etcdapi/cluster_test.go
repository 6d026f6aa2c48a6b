package etcdapi

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

func TestPeerURLsAreCheckedAndSorted(t *testing.T) {
	for given, want := range map[string]string{
		"http://b:2380":                      "[http://b:2380]",
		"https://[2001:db8::1]:2380":         "[https://[2001:db8::1]:2380]",
		" http://b:2380 ,http://a:2380":      "[http://a:2380 http://b:2380]",
		"":                                   "",
		"b:2380":                             "",
		"http://b":                           "",
		"http://:2380":                       "",
		"http://b:":                          "",
		"http://b:2380/":                     "",
		"http://b:2380/path":                 "",
		"http://b:2380?a=b":                  "",
		"http://b:2380#a":                    "",
		"http://user@b:2380":                 "",
		"http://b:port":                      "",
		"unix://b":                           "",
		"ftp://b:2380":                       "",
		"http://a:2380,bad":                  "",
		strings.Repeat("http://b:2380,", 17): "",
	} {
		got, err := peerURLs(strings.Split(given, ","))
		if want == "" {
			wantStatus(t, err, rpctypes.ErrGRPCMemberBadURLs)
			continue
		}
		wantOK(t, err)
		wantEqual(t, given, fmt.Sprint(got), want)
	}
	_, err := peerURLs(nil)
	wantStatus(t, err, rpctypes.ErrGRPCMemberBadURLs)
}

func TestDrawnIDsAreNotInUse(t *testing.T) {
	draws := []uint64{0, 7, math.MaxUint64, math.MaxUint64 - 1, 8, 9}
	draw := func() (id uint64) { id, draws = draws[0], draws[1:]; return id }
	wantEqual(t, "id", drawID([]roster.Member{{ID: 7}, {ID: 8}}, draw), 9)
	wantEqual(t, "draws left", len(draws), 0)
}
