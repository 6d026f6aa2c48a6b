package modules

// The tests of package clients build the tests of packages below this one.
import _ "go.etcd.io/etcd/tests/v3/integration"
