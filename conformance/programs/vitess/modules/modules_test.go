package modules

// The tests of package vitess build these. The etcd is the one whose client Vitess uses.
import (
	_ "go.etcd.io/etcd/server/v3/etcdmain"
	_ "vitess.io/vitess/go/cmd/vtctldclient/command"
	_ "vitess.io/vitess/go/vt/topo/etcd2topo"
)
