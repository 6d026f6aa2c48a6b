package mongodb

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestSettingsAreTakenFromTheURL(t *testing.T) {
	for _, c := range []struct {
		url, rest, database string
		config              Config
	}{
		{"mongodb://h", "mongodb://h/", DefaultDatabase, Config{}},
		{"mongodb://h/", "mongodb://h/", DefaultDatabase, Config{}},
		{"mongodb://h/app", "mongodb://h/app", "app", Config{}},
		{"mongodb://h?ns=x", "mongodb://h/", DefaultDatabase, Config{Namespace: "x"}},
		{"mongodb://h:1,[::1]:2/app?replicaSet=rs&ns=a%20b&w=majority&Prefix=l_&clock=store&retryWrites=true",
			"mongodb://h:1,[::1]:2/app?replicaSet=rs&w=majority&retryWrites=true", "app", Config{Namespace: "a b", Prefix: "l_", StoreClock: true}},
		{"mongodb+srv://u:p%2F%40@h.example/a%2Db?clock=writer", "mongodb+srv://u:p%2F%40@h.example/a%2Db", "a-b", Config{}},
		{"mongodb://%2Ftmp%2Fmongodb.sock/app?tls=false", "mongodb://%2Ftmp%2Fmongodb.sock/app?tls=false", "app", Config{}},
	} {
		rest, database, config, err := strip(c.url, Config{})
		if err != nil || rest != c.rest || database != c.database || config != c.config {
			t.Errorf("%s: %q %q %+v, %v", c.url, rest, database, config, err)
		}
	}
	// Settings that the URL lacks stay as configured.
	if _, _, config, err := strip("mongodb://h/?ns=x", Config{Namespace: "y", Prefix: "p", StoreClock: true}); err != nil || config != (Config{Namespace: "x", Prefix: "p", StoreClock: true}) {
		t.Error(config, err)
	}
	for _, url := range []string{"", "h", "http://h/", "mongodb:h", "mongodb://h/?ns=", "mongodb://h/?ns", "mongodb://h/?clock=mine", "mongodb://h/?poll=1s", "mongodb://h/?ns=%zz", "mongodb://h/%zz"} {
		if _, _, _, err := strip(url, Config{}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{Namespace: "a/b"}, {Namespace: "a\nb"}, {Namespace: "\xff"}, {Namespace: strings.Repeat("x", 129)}, {Namespace: "a\x00"},
		{Prefix: "a$"}, {Prefix: "system."}, {Prefix: "\xff"}, {Prefix: strings.Repeat("x", 129)},
	} {
		p := newPeer(t, ofASet, nil)
		if _, err := New(t.Context(), p.client().Database("app"), c); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := New(t.Context(), nil, Config{}); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
}

// Both schemes open a backend, and no error shows a password.
func TestBackendIsOpenedByURL(t *testing.T) {
	p := newPeer(t, ofASet, namespaceOf(byWriter))
	p.answers(func(name string, body bson.Raw) bson.D {
		if name == "find" {
			return cursor(namespace{ID: "jobs", Mode: byWriter, Version: version})
		}
		return nil
	})
	b, err := backend.Open(t.Context(), "mongodb://"+p.listener.Addr().String()+"/app?directConnection=true&prefix=x_&Poll=100ms&ns=jobs")
	if err != nil {
		t.Fatal(err)
	}
	if b.Scheme() != Scheme {
		t.Error(b.Scheme())
	}
	for _, body := range p.commands("find") {
		from, _ := body.Lookup("find").StringValueOK()
		in, _ := body.Lookup("$db").StringValueOK()
		if from != "x_namespaces" || in != "app" {
			t.Errorf("it reads %s in %s", from, in)
		}
	}
	if err := b.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for _, poll := range []string{"", "soon", "-1s", "10us"} {
		if b, err := backend.Open(t.Context(), "mongodb://"+p.listener.Addr().String()+"/app?directConnection=true&poll="+poll+"&ns=jobs"); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("poll=%s: %v, %v", poll, b, err)
		}
	}
	for _, url := range []string{"mongodb://u:s3cret@h/app?clock=s3cret", "mongodb+srv://u:s3cret@h:1/app", "mongodb://u:s3cret@/app?authMechanism=nonsense"} {
		if _, err := backend.Open(t.Context(), url); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}
