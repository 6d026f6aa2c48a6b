package roster

import (
	"errors"
	"strings"
	"testing"
)

func TestURLsWithoutTLSOffTheMachineAreInsecure(t *testing.T) {
	for url, secure := range map[string]bool{
		"https://host:2380": true, "http://127.0.0.1:2380": true, "http://localhost:1": true, "http://LOCALHOST:1/": true, "http://[::1]:2380": true,
		"http://127.8.0.1:2380": true, "http://[::ffff:127.0.0.1]:2380": true, "http://host:2380": false, "HTTP://host:2380": false,
		"http://10.0.0.2:2380": false, "http://[fe80::1]:2380": false, "http://localhost.example:1": false, "http://127.example:1": false, "http://0.0.0.0:1": false,
	} {
		m := Member{ID: 0xab, Name: "b", PeerURLs: []string{"https://first:1", url}}
		err := CheckSecure(Member{ID: 1, PeerURLs: []string{"https://other:1"}}, Member{ID: 2}, m)
		if secure != (err == nil) || !secure && (!errors.Is(err, ErrInsecure) || !strings.Contains(err.Error(), "b (00000000000000ab) at "+url)) {
			t.Errorf("%s: %v", url, err)
		}
		for kind := Add; kind <= Bind; kind++ {
			if got := (Change{kind, m}).CheckSecure(); (got == nil) != (secure || kind != Add && kind != Update) {
				t.Errorf("%v of %s: %v", kind, url, got)
			}
		}
	}
}
